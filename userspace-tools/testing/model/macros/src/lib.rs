// SPDX-License-Identifier: GPL-2.0
//! The kernel's `#[vtable]` for traits of plain methods.

use proc_macro::{Delimiter, TokenStream, TokenTree};

/// Adds `HAS_*` constants and the owning module.
#[proc_macro_attribute]
pub fn vtable(_attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let is_trait = tokens
        .iter()
        .any(|token| matches!(token, TokenTree::Ident(name) if name.to_string() == "trait"));
    let Some(TokenTree::Group(body)) = tokens.pop() else {
        panic!("no body");
    };
    let mut added = if is_trait {
        "type OwnerModule: ::kernel::ModuleMetadata;".to_string()
    } else {
        "type OwnerModule = ::kernel::ModelModule;".to_string()
    };
    for (name, has_body) in functions(body.stream()) {
        // A trait method without a body is required.
        if !is_trait {
            added += &format!("const HAS_{}: bool = true;", name.to_uppercase());
        } else if has_body {
            added += &format!("const HAS_{}: bool = false;", name.to_uppercase());
        } else {
            added += &format!("const HAS_{}: bool;", name.to_uppercase());
        }
    }
    let added: TokenStream = added.parse().expect("Rust");
    let body = added.into_iter().chain(body.stream()).collect();
    let body = proc_macro::Group::new(Delimiter::Brace, body);
    tokens.push(TokenTree::Group(body));
    tokens.into_iter().collect()
}

/// Names of the functions, and whether each has a body.
fn functions(body: TokenStream) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut tokens = body.into_iter();
    while let Some(token) = tokens.next() {
        if token.to_string() != "fn" {
            continue;
        }
        let name = tokens.next().expect("a name").to_string();
        let end = tokens.find(|token| match token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(punct) => punct.as_char() == ';',
            _ => false,
        });
        found.push((name, matches!(end, Some(TokenTree::Group(_)))));
    }
    found
}
