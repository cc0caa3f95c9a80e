//! A record whose first bytes alone are looked at: what they show is what the whole record shows.

use super::any;
use crossdock_format::{FieldType, Format, Record, RecordBuilder, Value};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_first_bytes_of_a_record_say_no_more_than_all_of_it(
        format in any::format(),
        seed in any::<u64>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = any::record(&format, seed);
        for (at, with) in changes {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        let is_sound = Record::check(&format, &bytes).is_ok_and(|record| record.bytes().len() == bytes.len());
        let front = &bytes[..cut.index(bytes.len() + 1)];
        let is_known = format.is_sound_by_front(front, bytes.len());
        prop_assert!(is_sound || !is_known);
        prop_assert_eq!(format.is_sound_by_front(&bytes, bytes.len()), is_sound);
        prop_assert!(!format.is_sound_by_front(front, bytes.len() + 8));
        // Without lists, all that is checked lies in the fixed part.
        let has_lists = format.fields().iter().any(|field| field.ty == FieldType::List);
        prop_assert!(has_lists || front.len() < format.fixed_bytes() || is_known == is_sound);
    }
}

#[test]
fn elements_beyond_the_first_bytes_are_not_taken_for_sound() {
    // The elements of the one need no look, those of the other have slots.
    for (schema, is_known) in [("a i64[]", true), ("a string[]", false)] {
        let format = Format::parse_schema(schema).unwrap();
        let mut row = RecordBuilder::new(&format);
        row.begin_list(0).unwrap();
        for at in 0..100 {
            row.push(if is_known { Value::Int(at) } else { Value::Text(b"text") }).unwrap();
        }
        row.end_list().unwrap();
        let bytes = row.finish().unwrap();
        let is_sound = |front: usize| format.is_sound_by_front(&bytes[..front], bytes.len());
        assert_eq!((is_sound(bytes.len() - 8), is_sound(64)), (is_known, is_known), "{schema}");
        assert!(is_sound(bytes.len()), "{schema}");
    }
}
