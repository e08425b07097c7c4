//! The normal form of Rust source text: what the compiler reads outside tests. Texts that differ only in comments, documentation,
//! tests and spaces have the same form.
//!
//! build.rs includes this file for the digest of the code that decides bytes; the crate has it only for its tests. O(bytes).

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};
use std::iter::Peekable;

/// The normal form of a file's text. An error if the text is not Rust.
pub fn normal_form(source: &str) -> Result<String, proc_macro2::LexError> {
    let mut form = String::new();
    write(source.parse()?, &mut form);
    Ok(form)
}

fn write(stream: TokenStream, form: &mut String) {
    let mut tokens = stream.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(sign) if sign.as_char() == '#' => match attribute(&mut tokens) {
                Some(group) if is_documentation(&group) => {}
                Some(group) if group.stream().to_string().replace(' ', "") == "cfg(test)" => skip_item(&mut tokens),
                Some(group) => write_group(&group, form),
                None => form.push('#'),
            },
            TokenTree::Punct(sign) => {
                form.push(sign.as_char());
                if sign.spacing() == Spacing::Alone {
                    form.push(' ');
                }
            }
            TokenTree::Group(group) => write_group(&group, form),
            word => {
                form.push_str(&word.to_string());
                form.push(' ');
            }
        }
    }
}

fn write_group(group: &Group, form: &mut String) {
    let (begin, end) = match group.delimiter() {
        Delimiter::Parenthesis => ('(', ')'),
        Delimiter::Brace => ('{', '}'),
        Delimiter::Bracket => ('[', ']'),
        Delimiter::None => (' ', ' '),
    };
    form.push(begin);
    write(group.stream(), form);
    form.push(end);
}

/// The brackets of an attribute whose `#` was just read, with or without `!` between; None if that `#` begins no attribute.
fn attribute(tokens: &mut Peekable<impl Iterator<Item = TokenTree>>) -> Option<Group> {
    tokens.next_if(|token| matches!(token, TokenTree::Punct(sign) if sign.as_char() == '!'));
    match tokens.next_if(|token| matches!(token, TokenTree::Group(_)))? {
        TokenTree::Group(group) => Some(group),
        _ => None,
    }
}

fn is_documentation(attribute: &Group) -> bool {
    matches!(attribute.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}

/// Skips an item: to its `;`, or to its braces. A `use` always ends with `;`.
fn skip_item(tokens: &mut Peekable<impl Iterator<Item = TokenTree>>) {
    let mut is_use = false;
    for token in tokens.by_ref() {
        match token {
            TokenTree::Ident(word) => is_use |= word == "use",
            TokenTree::Punct(sign) if sign.as_char() == ';' => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is_use => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::normal_form;

    const CODE: &str = "pub fn twice(n: u32) -> u32 { n * 2 }";

    fn form(source: &str) -> String {
        normal_form(source).expect("Rust")
    }

    #[test]
    fn comments_documentation_tests_and_spaces_do_not_change_the_form() {
        for same in [
            "//! Of a module.\n\npub fn twice(n: u32) -> u32 {\n    // why\n    n * 2 /* here */\n}\n",
            "/// The double.\n#[doc(hidden)]\npub fn twice(n: u32) -> u32 { n * 2 }",
            "pub fn twice(n: u32) -> u32 { n * 2 }\n#[cfg(test)]\n#[path = \"tests.rs\"]\nmod tests;",
            "#[cfg(test)]\nuse std::{fs, io};\npub fn twice(n: u32) -> u32 { n * 2 }\n#[cfg(test)]\nmod tests { fn one() {} }",
        ] {
            assert_eq!(form(same), form(CODE), "{same}");
        }
    }

    #[test]
    fn other_code_has_another_form() {
        for other in [
            "pub fn twice(n: u32) -> u32 { n * 3 }",
            "#[inline]\npub fn twice(n: u32) -> u32 { n * 2 }",
            "#[cfg(unix)]\npub fn twice(n: u32) -> u32 { n * 2 }",
            "pub fn twice(n: u32) -> u32 { n * 2 }\nfn one() {}",
        ] {
            assert_ne!(form(other), form(CODE), "{other}");
        }
        assert_ne!(form("a && b"), form("a & &b"));
        assert_ne!(form("\"// no comment\""), form("\"//\""));
    }
}
