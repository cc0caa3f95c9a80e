//! LIKE: `%` stands for any text, `_` for one character, the escape character takes the meaning from what follows it.

/// One character of UTF-8 text, or a byte that is none.
#[derive(Clone, Copy, PartialEq)]
enum Char {
    Whole(char),
    Stray(u8),
}

enum Element {
    AnyText,
    AnyChar,
    One(Char),
}

/// Whether `text` is as `pattern` says. Goes back only to the last `%`, so it takes at most
/// `text.len() * pattern.len()` steps.
pub(super) fn is_like(text: &[u8], pattern: &[u8], escape: Option<char>, any_case: bool) -> bool {
    let (mut at, mut in_pattern) = (0, 0);
    // Where to go on after the last `%` took one character more: in the pattern, in the text.
    let mut retry: Option<(usize, usize)> = None;
    while let Some((char, after)) = char_at(text, at) {
        let fits = match element_at(pattern, in_pattern, escape) {
            Some((Element::AnyText, next)) => {
                retry = Some((next, at));
                in_pattern = next;
                continue;
            }
            Some((Element::AnyChar, next)) => Some(next),
            Some((Element::One(wanted), next)) if is_same(char, wanted, any_case) => Some(next),
            _ => None,
        };
        match (fits, retry) {
            (Some(next), _) => (at, in_pattern) = (after, next),
            (None, Some((next, from))) => {
                let from = char_at(text, from).map_or(text.len(), |(_, after)| after);
                retry = Some((next, from));
                (at, in_pattern) = (from, next);
            }
            (None, None) => return false,
        }
    }
    while let Some((Element::AnyText, next)) = element_at(pattern, in_pattern, escape) {
        in_pattern = next;
    }
    in_pattern >= pattern.len()
}

/// Whether the pattern's last character is an escape character with nothing to escape.
pub(crate) fn ends_in_escape(pattern: &[u8], escape: Option<char>) -> bool {
    let mut at = 0;
    while let Some((char, after)) = char_at(pattern, at) {
        at = after;
        if Some(char) == escape.map(Char::Whole) {
            match char_at(pattern, at) {
                Some((_, after)) => at = after,
                None => return true,
            }
        }
    }
    false
}

fn element_at(pattern: &[u8], at: usize, escape: Option<char>) -> Option<(Element, usize)> {
    let (char, after) = char_at(pattern, at)?;
    if Some(char) == escape.map(Char::Whole) {
        return Some(match char_at(pattern, after) {
            Some((escaped, after)) => (Element::One(escaped), after),
            None => (Element::One(char), after),
        });
    }
    Some(match char {
        Char::Whole('%') => (Element::AnyText, after),
        Char::Whole('_') => (Element::AnyChar, after),
        char => (Element::One(char), after),
    })
}

fn is_same(left: Char, right: Char, any_case: bool) -> bool {
    match (left, right) {
        (Char::Whole(left), Char::Whole(right)) if any_case => {
            left == right || left.to_lowercase().eq(right.to_lowercase())
        }
        _ => left == right,
    }
}

/// The character at a byte, and where the next one begins.
fn char_at(text: &[u8], at: usize) -> Option<(Char, usize)> {
    let rest = text.get(at..)?;
    let &first = rest.first()?;
    let length = match first {
        0..=0x7f => return Some((Char::Whole(first.into()), at + 1)),
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Some((Char::Stray(first), at + 1)),
    };
    let whole = rest.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
    Some(match whole.and_then(|text| text.chars().next()) {
        Some(char) => (Char::Whole(char), at + length),
        None => (Char::Stray(first), at + 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let cases: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("", "%", true),
            ("", "_", false),
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "%b%", true),
            ("abc", "a_c", true),
            ("abc", "a_", false),
            ("abc", "abcd", false),
            ("aab", "%ab", true),
            ("abab", "%ab", true),
            ("mississippi", "%iss%ip%", true),
            ("mississippi", "m%iss%iss%iss%", false),
            ("äöü", "___", true),
            ("äöü", "_ö_", true),
            ("100%", "100\\%", true),
            ("1000", "100\\%", false),
            ("a_b", "a\\_b", true),
            ("axb", "a\\_b", false),
            ("a\\b", "a\\\\b", true),
        ];
        for (text, pattern, expected) in cases {
            let found = is_like(text.as_bytes(), pattern.as_bytes(), Some('\\'), false);
            assert_eq!(found, *expected, "{text:?} LIKE {pattern:?}");
        }
    }

    #[test]
    fn case_and_escape() {
        assert!(is_like("ÄpFel".as_bytes(), "äPf%".as_bytes(), Some('\\'), true));
        assert!(!is_like("ÄpFel".as_bytes(), "äPf%".as_bytes(), Some('\\'), false));
        assert!(is_like(b"50%", b"50!%", Some('!'), false));
        assert!(is_like(b"a\\b", b"a\\b", None, false));
        assert!(is_like("a%".as_bytes(), "aé%".as_bytes(), Some('é'), false));
    }

    #[test]
    fn text_that_is_not_utf8_matches_byte_by_byte() {
        assert!(is_like(b"\xff\xfe", b"__", Some('\\'), false));
        assert!(is_like(b"\xffa", b"%a", Some('\\'), false));
        assert!(!is_like(b"\xff", b"\xfe", Some('\\'), false));
    }

    #[test]
    fn a_pattern_that_ends_in_its_escape() {
        assert!(ends_in_escape(b"a\\", Some('\\')));
        assert!(!ends_in_escape(b"a\\\\", Some('\\')));
        assert!(!ends_in_escape(b"a\\", Some('!')));
        assert!(!ends_in_escape(b"a\\", None));
    }
}
