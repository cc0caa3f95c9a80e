//! The output that a chain must make, against what it comes to.

use crossdock_control::order::{Dependency, needed};
use proptest::prelude::*;

fn of(reads: &[usize]) -> Dependency {
    Dependency { reads: reads.to_vec(), can_fail: false }
}

#[test]
fn a_chain_extracts_before_it_reformats() {
    // Four fields reformatted, then one of them kept: only that one is made, and only its source read.
    let reformat = vec![of(&[0]), of(&[1]), of(&[2, 3]), of(&[3])];
    assert_eq!(needed(&[reformat.clone(), vec![of(&[1])]]), [vec![false, true, false, false], vec![true]]);
    // A field that can fail is made all the same: the records that it refuses stay refused.
    let mut careful = reformat;
    careful[2].can_fail = true;
    assert_eq!(needed(&[careful.clone(), vec![of(&[1])]]), [vec![false, true, true, false], vec![true]]);
    // Of three steps the middle one is narrowed too, and with it what the first one makes.
    let middle = vec![of(&[0]), of(&[1, 2])];
    let expected = [vec![false, true, true, false], vec![false, true], vec![true]];
    assert_eq!(needed(&[careful, middle, vec![of(&[1])]]), expected);
    assert!(needed(&[]).is_empty());
}

/// Steps over numbers: a field is the sum of what it reads plus its place, and fails where that is divisible by 5, if it can.
fn run(steps: &[Vec<Dependency>], flags: Option<&[Vec<bool>]>, input: &[u64]) -> Option<Vec<u64>> {
    let mut values: Vec<Option<u64>> = input.iter().copied().map(Some).collect();
    for (at, step) in steps.iter().enumerate() {
        let mut made = Vec::new();
        for (place, field) in step.iter().enumerate() {
            if flags.is_some_and(|flags| !flags[at][place]) {
                made.push(None);
                continue;
            }
            // A field that is read and was not made would be the fault of the plan.
            let read = |&input: &usize| values[input].expect("what is read was made");
            let value = field.reads.iter().map(read).fold(place as u64, u64::wrapping_add);
            if field.can_fail && value.is_multiple_of(5) {
                return None;
            }
            made.push(Some(value));
        }
        values = made;
    }
    values.into_iter().collect()
}

fn steps() -> impl Strategy<Value = Vec<Vec<Dependency>>> {
    let making = (prop::collection::vec(0..5_usize, 0..3), any::<bool>());
    let step = prop::collection::vec(making, 5);
    prop::collection::vec(step, 1..5).prop_map(|steps| {
        let field = |(reads, can_fail)| Dependency { reads, can_fail };
        steps.into_iter().map(|step| step.into_iter().map(field).collect()).collect()
    })
}

proptest! {
    #[test]
    fn leaving_out_what_nobody_needs_changes_no_result(steps in steps(), input in prop::collection::vec(0..100_u64, 5)) {
        let flags = needed(&steps);
        prop_assert_eq!(run(&steps, None, &input), run(&steps, Some(&flags), &input));
    }

    #[test]
    fn nothing_more_could_be_left_out(steps in steps()) {
        // A field that is made is the last step's, can fail, or is read by one that is made.
        let flags = needed(&steps);
        for at in 0..steps.len() - 1 {
            for place in 0..5 {
                let is_read = steps[at + 1].iter().zip(&flags[at + 1]).any(|(f, made)| *made && f.reads.contains(&place));
                prop_assert_eq!(flags[at][place], steps[at][place].can_fail || is_read);
            }
        }
    }
}
