"""A signal that arrives while the main thread waits for Python's import lock."""

HOLDS_THE_IMPORT_LOCK = """
import _imp, importlib, os, signal, sys, threading, time
def hold(held):
    _imp.acquire_lock()
    held.set()
    time.sleep(0.3)  # the main thread now waits for it
    os.kill(os.getpid(), signal.NUMBER)
    time.sleep(0.1)
    _imp.release_lock()
def import_meanwhile():
    held = threading.Event()
    threading.Thread(target=hold, args=[held]).start()
    held.wait()
    try:
        importlib.import_module("tabnanny")
        time.sleep(60)
    finally:
        another = threading.Thread(target=importlib.import_module, args=["nturl2path"], daemon=True)
        another.start()
        another.join(10)
        print("taken" if another.is_alive() else "free", flush=True)
"""
"""`import_meanwhile` imports a module then, and prints whether another thread can import one afterwards. NUMBER: the signal."""
