//! Puts a digest of the crate's sources into the module, so that Python can tell a core that is older than they are.
//! sha256 over Cargo.lock, Cargo.toml, build.rs and src/**/*.rs in the order of their names: name, NUL, length (u64,
//! little-endian), content. tokenmill/sources.py takes the same.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let mut names: Vec<String> = ["Cargo.lock", "Cargo.toml", "build.rs"].map(String::from).into();
    collect(&root, &root.join("src"), &mut names)?;
    names.sort();
    let mut digest = Sha256::new();
    for name in &names {
        let content = fs::read(root.join(name))?;
        digest.update(name.as_bytes());
        digest.update([0]);
        digest.update((content.len() as u64).to_le_bytes());
        digest.update(&content);
        println!("cargo::rerun-if-changed={name}");
    }
    println!("cargo::rerun-if-changed=src");
    let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=TOKENMILL_SOURCE_HASH={hex}");
    Ok(())
}

fn collect(root: &Path, folder: &Path, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).map_err(io::Error::other)?;
            names.push(name.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}
