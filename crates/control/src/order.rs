//! The fields that each step of a chain has to make.
//!
//! The paper's figure 3: a chain that extracts first what is needed, and reformats that, beats one that reformats all and
//! then drops most of it. Whoever registers conversions does not know what chains they will be steps of. So a chain is looked
//! at from its end: a field that no later step reads need not be made, and then what only it was made of need not be
//! read. Each step thus becomes the extraction of what is needed, and the first one extracts before anything is reformatted.
//!
//! The result must stay the same. A field whose making can fail refuses its record, which is a result too: it is made
//! whether somebody reads it or not.

/// A field as one step makes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependency {
    /// The fields that it is made of, by their places among the step's inputs: what the step before makes.
    pub reads: Vec<usize>,
    /// Whether some record is refused because this field cannot be made of it.
    pub can_fail: bool,
}

/// Which fields each step makes, given how it makes all of them: a flag a field, a list a step. All fields of the last one
/// are needed.
#[must_use]
pub fn needed(steps: &[Vec<Dependency>]) -> Vec<Vec<bool>> {
    let mut needed: Vec<Vec<bool>> =
        steps.iter().map(|step| step.iter().map(|field| field.can_fail).collect()).collect();
    if let Some(last) = needed.last_mut() {
        last.fill(true);
    }
    for at in (1..steps.len()).rev() {
        let (before, of_step) = needed.split_at_mut(at);
        let made = steps[at].iter().zip(&of_step[0]).filter(|(_, needed)| **needed);
        for input in made.flat_map(|(field, _)| &field.reads) {
            if let Some(flag) = before[at - 1].get_mut(*input) {
                *flag = true;
            }
        }
    }
    needed
}
