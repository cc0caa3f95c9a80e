//! Bytes that fields take, and which of them share some.

use super::piece::Spot;

/// Bytes that a field takes.
pub(super) struct Span {
    pub(super) start: Spot,
    /// Where it ends, from the same anchor on; the greatest number if that is not constant.
    pub(super) end: u32,
    pub(super) bits: Option<(u8, u8)>,
    /// Unions that it lies in, each with the variant.
    pub(super) variants: Vec<(usize, usize)>,
    pub(super) overlay: bool,
    pub(super) line: usize,
    pub(super) name: String,
}

/// Two fields that share bytes, unless one of them says that it does, or never both are there: in the order in which they
/// are declared.
pub(super) fn shared(spans: &[Span]) -> Option<(&Span, &Span)> {
    let mut spans: Vec<&Span> = spans.iter().collect();
    spans.sort_by_key(|span| (span.start.anchor, span.start.offset));
    let mut open: Vec<&Span> = Vec::new();
    for span in spans {
        open.retain(|other| other.start.anchor == span.start.anchor && other.end > span.start.offset);
        if let Some(other) = open.iter().find(|other| other.shares_with(span)) {
            return Some(if other.line <= span.line { (*other, span) } else { (span, *other) });
        }
        open.push(span);
    }
    None
}

impl Span {
    fn shares_with(&self, other: &Span) -> bool {
        let in_two_variants = self
            .variants
            .iter()
            .any(|(union, variant)| other.variants.iter().any(|(other, another)| union == other && variant != another));
        let in_two_bits = match (self.bits, other.bits) {
            (Some(one), Some(two)) => {
                (self.start, self.end) == (other.start, other.end) && (one.1 <= two.0 || two.1 <= one.0)
            }
            _ => false,
        };
        self.start.offset < other.end
            && other.start.offset < self.end
            && !in_two_variants
            && !in_two_bits
            && !self.overlay
            && !other.overlay
    }
}
