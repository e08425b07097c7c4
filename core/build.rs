//! Makes three things that the crate includes: a digest of its sources, a digest of its code, and the tables of character classes.
//!
//! Both digests are the sha256 over Cargo.lock, Cargo.toml, build.rs and src/**/*.rs in the order of their names; each adds its
//! name, NUL, its length (u64, little-endian) and its content. The digest of the sources lets Python detect a compiled core that is
//! older than its sources; tokenmill/pipeline/core_sources.py computes it, too. The digest of the code takes each Rust file in its
//! normal form, and leaves out files named tests.rs, so a mended comment or test does not make units stale.

#[allow(dead_code)]
#[path = "src/split/named.rs"]
mod named;
#[path = "src/normal_form.rs"]
mod normal_form;

use regex_syntax::hir::{Class, HirKind};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let mut names: Vec<String> = ["Cargo.lock", "Cargo.toml", "build.rs"].map(String::from).into();
    collect(&root, &root.join("src"), &mut names)?;
    names.sort();
    let (mut sources, mut code) = (Sha256::new(), Sha256::new());
    for name in &names {
        let content = fs::read_to_string(root.join(name))?;
        add(&mut sources, name, &content);
        if !name.ends_with(".rs") {
            add(&mut code, name, &content);
        } else if !name.ends_with("/tests.rs") {
            add(
                &mut code,
                name,
                &normal_form::normal_form(&content).map_err(|error| io::Error::other(error.to_string()))?,
            );
        }
        println!("cargo::rerun-if-changed={name}");
    }
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-env=TOKENMILL_SOURCE_HASH={}", hex(sources));
    println!("cargo::rustc-env=TOKENMILL_CODE_HASH={}", hex(code));
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(out.join("unicode_tables.rs"), tables()?)
}

fn add(digest: &mut Sha256, name: &str, content: &str) {
    digest.update(name.as_bytes());
    digest.update([0]);
    digest.update((content.len() as u64).to_le_bytes());
    digest.update(content);
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The source text of the two tables. src/split/unicode.rs and src/split/scan/deepseek.rs name their flags.
fn tables() -> io::Result<String> {
    let general = [r"[\p{Lu}\p{Lt}]", r"\p{Ll}", r"[\p{Lm}\p{Lo}]", r"\p{M}", r"\p{N}", r"\s", r"['\r\n]", r"[/\x20]"];
    let [_, letters, punctuation, _, ideographs, _] = named::DEEPSEEK;
    let spelled = |step: &str| step.trim_start_matches(r"\s?").trim_end_matches('+').to_string();
    let deepseek = [
        spelled(letters),
        spelled(punctuation),
        spelled(ideographs),
        r"\p{N}".into(),
        r"[\s&&[^\r\n]]".into(),
        r"[\r\n]".into(),
    ];
    Ok(table("GENERAL", &general.map(String::from))? + &table("DEEPSEEK", &deepseek)?)
}

/// The source text of one table. A character has flag 2^i if it is in class i.
fn table(name: &str, classes: &[String]) -> io::Result<String> {
    let mut flags = vec![0_u8; 0x11_0000];
    for (i, class) in classes.iter().enumerate() {
        let hir = regex_syntax::parse(class).map_err(io::Error::other)?;
        let HirKind::Class(Class::Unicode(class)) = hir.kind() else { return Err(io::Error::other("no class")) };
        for range in class.ranges() {
            flags[range.start() as usize..=range.end() as usize].iter_mut().for_each(|one| *one |= 1 << i);
        }
    }
    let mut blocks: Vec<&[u8]> = Vec::new();
    let index = flags.chunks(64).map(|block| {
        blocks.iter().position(|known| *known == block).unwrap_or_else(|| {
            blocks.push(block);
            blocks.len() - 1
        })
    });
    let index: Vec<usize> = index.collect();
    let mut text = String::new();
    writeln!(text, "pub static {name}: Table = Table {{").map_err(io::Error::other)?;
    writeln!(text, "ascii: {:?}, index: {index:?}, blocks: &{blocks:?} }};", &flags[..128])
        .map_err(io::Error::other)?;
    Ok(text)
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
