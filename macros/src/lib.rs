//! The attribute `docs` of `highwire::openapi`. A macro is the only way to a function's doc comment.
// docs.rs builds with nightly: each item that needs a feature shows it.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Keeps a function's doc comment for `openapi::operation!`, which makes it the summary and the description of the operation. It adds a hidden
/// module that has the function's name, so no other module may have this name.
#[proc_macro_attribute]
pub fn docs(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let name = match (arguments.is_empty(), name(item.clone())) {
        (false, _) => return error("`docs` takes no arguments", item),
        (true, None) => return error("`docs` is for functions", item),
        (true, Some(name)) => name,
    };
    let mut lines = TokenStream::new();
    for line in comments(item.clone()) {
        lines.extend(line);
        lines.extend(", \"\\n\",".parse::<TokenStream>());
    }
    let mut module: TokenStream =
        "#[doc(hidden)] #[allow(dead_code, unreachable_pub, missing_docs)] pub mod".parse().unwrap_or_default();
    let mut constant: TokenStream = "pub const DOCS: &str = ::core::concat!".parse().unwrap_or_default();
    constant.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, lines)), punctuation(';')]);
    module.extend([TokenTree::Ident(name), TokenTree::Group(Group::new(Delimiter::Brace, constant))]);
    let mut whole = item;
    whole.extend(module);
    whole
}

fn punctuation(character: char) -> TokenTree {
    TokenTree::Punct(Punct::new(character, Spacing::Alone))
}

/// Returns the identifier behind the first `fn`.
fn name(item: TokenStream) -> Option<Ident> {
    let mut tokens = item.into_iter().skip_while(|token| !is_word(token, "fn"));
    match (tokens.next(), tokens.next()) {
        (Some(_), Some(TokenTree::Ident(name))) => Some(name),
        _ => None,
    }
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

/// Returns the texts of the attributes `#[doc = text]`, which doc comments are.
fn comments(item: TokenStream) -> Vec<TokenStream> {
    let mut found = Vec::new();
    for token in item {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                let mut inside = group.stream().into_iter();
                let is_doc = inside.next().is_some_and(|token| is_word(&token, "doc"));
                if is_doc && matches!(inside.next(), Some(TokenTree::Punct(equals)) if equals.as_char() == '=') {
                    found.push(inside.collect());
                }
            }
            token if is_word(&token, "fn") => break,
            _ => {}
        }
    }
    found
}

/// Returns the item with a compile error at the attribute.
fn error(text: &str, item: TokenStream) -> TokenStream {
    let message = TokenStream::from(TokenTree::Literal(Literal::string(text)));
    let mut call: TokenStream = "::core::compile_error!".parse().unwrap_or_default();
    call.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, message)), punctuation(';')]);
    let mut whole: TokenStream = call
        .into_iter()
        .map(|mut token| {
            token.set_span(Span::call_site());
            token
        })
        .collect();
    whole.extend(item);
    whole
}
