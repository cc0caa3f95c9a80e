//! How names of streams in commands and configurations are matched: as a query matches a name without quotes.

/// The known name that a name means: the same one; else the only one that differs from it in case alone; the name itself if there is
/// none.
///
/// # Errors
/// Several known names differ from it in case alone.
pub(crate) fn meant<'n>(name: &'n str, known: impl IntoIterator<Item = &'n str>) -> Result<&'n str, String> {
    let wanted = name.to_lowercase();
    let mut alike: Option<&str> = None;
    let mut other = None;
    for known in known {
        if known == name {
            return Ok(name);
        }
        if known.to_lowercase() == wanted {
            match alike {
                None => alike = Some(known),
                Some(_) => other = Some(known),
            }
        }
    }
    match (alike, other) {
        (Some(one), Some(other)) => {
            Err(format!("stream `{name}` may be `{one}` or `{other}`: write the name as it is"))
        }
        (one, _) => Ok(one.unwrap_or(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_same_one_or_the_only_one_that_differs_in_case() {
        assert_eq!(meant("a", ["A", "a", "b"]), Ok("a"));
        assert_eq!(meant("ÄB", ["b", "äb"]), Ok("äb"));
        assert_eq!(meant("c", ["a", "b"]), Ok("c"));
        assert_eq!(
            meant("ab", ["AB", "Ab"]).err().as_deref(),
            Some("stream `ab` may be `AB` or `Ab`: write the name as it is")
        );
    }
}
