//! Plans for less: of what others make, only what is read later, from records that have no more than that.

use super::Plan;
use super::path::Source;
use crate::format::Format;

impl Plan {
    /// The fields of the source that each field of the target is made of, by their indices, and whether some record is
    /// refused there. Behind these the same for fields that were left out on the way and are followed for what they refuse.
    #[must_use]
    pub fn makings(&self) -> Vec<(Vec<usize>, bool)> {
        let sources = self.inner.sources.iter().map(|source| match source {
            Source::Null | Source::Constant(_) => (Vec::new(), false),
            Source::Field(path) => (vec![path.from], path.may_refuse()),
        });
        sources.chain(self.inner.checks.iter().map(|path| (vec![path.from], true))).collect()
    }

    /// The same plan over records of a format that has the fields it then reads, by name and type, wherever they are;
    /// making only some of its fields: a flag a field, of nested records all fields or none. A field that is not made and
    /// may refuse a record still does. `None` if a field that it reads is not there, or none is to be made.
    #[must_use]
    pub fn narrowed(&self, from: &Format, makes: &[bool]) -> Option<Plan> {
        let to = self.to().narrowed(makes)?;
        let other = |index: usize| {
            let field = self.from().fields().get(index)?;
            let at = from.field(&field.name)?;
            (from.fields().get(at)?.spec() == field.spec()).then_some(at)
        };
        let (mut sources, mut checks) = (Vec::new(), Vec::new());
        for (field, source) in self.to().fields().iter().zip(&self.inner.sources) {
            let mut source = source.clone();
            let is_made = to.field(&field.name).is_some();
            if let Source::Field(path) = &mut source {
                if !is_made && !path.may_refuse() {
                    continue;
                }
                path.from = other(path.from)?;
            }
            match source {
                source if is_made => sources.push(source),
                Source::Field(path) => checks.push(path),
                Source::Null | Source::Constant(_) => {}
            }
        }
        for path in &self.inner.checks {
            let mut path = path.clone();
            path.from = other(path.from)?;
            checks.push(path);
        }
        Some(Plan::of(from, &to, sources, checks))
    }
}
