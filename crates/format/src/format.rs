//! A format: fields with their places, an id, and what checking and reading its records needs, worked out once.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::element::{Count, Element, Enumeration, Group, Member};
use crate::field::{Detail, Field, FieldType};
use crate::foreign::ForeignLayout;
use crate::id::{FormatDigest, FormatId};
pub(crate) use crate::problem::{FormatError, FormatProblem};
use crate::spec::{FieldSpec, TypeSpec};

/// Bytes of the record's length, in front of the null bitmap.
pub(crate) const LENGTH_BYTES: usize = 4;
/// Records and their fixed parts are a multiple of this long.
pub(crate) const RECORD_ALIGN: usize = 8;

/// A list of fields with their places in a record. Cheap to clone (shared); equal when the digests of the descriptions are.
#[derive(Clone)]
pub struct Format {
    inner: Arc<Inner>,
}

struct Inner {
    frame: Frame,
    fields: Vec<Field>,
    tree: Vec<Member>,
    by_name: HashMap<String, usize>,
    id: FormatId,
    digest: FormatDigest,
    layout: Layout,
}

/// The bytes around the fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    /// A record: its length comes first.
    Record,
    /// An element of a list, with no length.
    Element,
    /// A record of a foreign layout.
    Foreign,
    /// An element of a list in one.
    ForeignElement,
}

/// Where a record ends, as far as its first bytes say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// The record ends after this many bytes, and all are there.
    Whole(usize),
    /// There are not enough bytes; the record has at least `at_least`.
    Short { at_least: usize },
    /// Nobody can say: it is no record.
    Unknown,
}

/// Which declarations of fields are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Specs {
    /// As they were declared.
    Declared,
    /// As the natural format of a foreign layout has them: fields that others say are nullable.
    Natural,
}

/// Fields and null bits as a layout gives them out.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) fields: Vec<Field>,
    /// For each field, the innermost nested record with a null bit that it lies in.
    pub(crate) within: Vec<Option<usize>>,
    /// For each field, whether it has a null bit of its own.
    pub(crate) own_null: Vec<bool>,
    pub(crate) groups: Vec<NullBit>,
    pub(crate) unions: Vec<Union>,
    /// Where the null bitmap starts.
    pub(crate) null_at: usize,
}

/// The null bit of a nested record.
pub(crate) struct NullBit {
    pub(crate) bit: u16,
    /// The nested record with a null bit that it lies in.
    pub(crate) within: Option<usize>,
}

/// A union: the null bits of its variants.
pub(crate) struct Union {
    pub(crate) tests: Vec<u16>,
    pub(crate) nullable: bool,
    pub(crate) within: Option<usize>,
    /// The first field in it.
    pub(crate) first: usize,
}

/// Where the value of one field is: what reading it needs, in 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    pub(crate) ty: FieldType,
    pub(crate) offset: u32,
    /// The byte of the null bitmap, counted from the start of the record; with `null_mask` 0 it is never looked at.
    pub(crate) null_byte: u32,
    /// The bit in that byte; 0 for a field that is never null.
    pub(crate) null_mask: u8,
    /// The kind of the null bit, or whether there is more to reading than a load.
    pub(crate) kind: CellKind,
    /// One more than the index of the innermost nested record with a null bit that the field lies in; 0 for none.
    pub(crate) group: u16,
}

/// How a cell is to be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CellKind {
    /// The null bit, if there is one, is the field's own.
    Own,
    /// The null bit is that of a nested record.
    Shared,
    /// The layout's access says how the field is read.
    Foreign,
}

impl Cell {
    /// Whether the null bit is that of a nested record, and not the field's own.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.kind == CellKind::Shared
    }
}

/// A null bit, found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bit {
    /// From the start of the record or element.
    pub(crate) byte: u32,
    pub(crate) mask: u8,
}

impl Bit {
    fn of(null_at: usize, bit: u16) -> Self {
        Self { byte: (null_at + usize::from(bit) / 8) as u32, mask: 1 << (bit % 8) }
    }

    /// Whether it is set, in the record or element that starts at `base`.
    #[inline]
    pub(crate) fn is_set(self, bytes: &[u8], base: usize) -> bool {
        bytes.get(base + self.byte as usize).is_some_and(|byte| byte & self.mask != 0)
    }
}

/// A nested record that may be null.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct GroupCell {
    pub(crate) null: Bit,
    /// As in [`Cell`].
    pub(crate) group: u16,
}

/// A union.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct UnionCell {
    pub(crate) variants: Box<[Bit]>,
    pub(crate) nullable: bool,
    /// As in [`Cell`].
    pub(crate) group: u16,
    /// The first field in it.
    pub(crate) first: usize,
}

/// A format without its names.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) cells: Box<[Cell]>,
    /// Offsets of the slots of `string` and `bytes` fields.
    pub(crate) slots: Box<[u32]>,
    /// Offsets of `bool` fields.
    pub(crate) bools: Box<[u32]>,
    pub(crate) groups: Box<[GroupCell]>,
    pub(crate) unions: Box<[UnionCell]>,
    /// Whether there are lists or unions: more to check than slots and bools.
    pub(crate) is_deep: bool,
    /// Whether any value has bytes in the variable part, at any depth.
    pub(crate) has_slots: bool,
    /// Whether a field has a default.
    pub(crate) has_defaults: bool,
    /// The fixed part of a record all of whose nullable fields are null: what a builder starts from.
    pub(crate) blank: Box<[u8]>,
    /// One bit a field, set for those that every record must have a value for, and for those that must have one where
    /// the nested record that they lie in is there.
    pub(crate) required: Box<[u64]>,
    /// The elements of list fields, and what enumerations' numbers stand for; by field.
    pub(crate) details: Box<[Detail]>,
    /// The further properties of a foreign layout.
    pub(crate) foreign: Option<Box<ForeignLayout>>,
}

impl Format {
    /// A format of all its parts; `description` is its canonical one.
    pub(crate) fn with(
        frame: Frame,
        fields: Vec<Field>,
        tree: Vec<Member>,
        layout: Layout,
        description: &str,
    ) -> Result<Format, FormatProblem> {
        let by_name = fields.iter().enumerate().map(|(index, field)| (field.name.clone(), index)).collect();
        if description.len() > crate::MAX_DESCRIPTION_BYTES {
            return Err(FormatProblem::DescriptionTooLong { bytes: description.len() });
        }
        let digest = FormatDigest::of(description);
        let inner = Inner { frame, fields, tree, by_name, id: digest.id(), digest, layout };
        Ok(Format { inner: Arc::new(inner) })
    }

    /// The same format under another id, for tests of what happens where two have the same: a pair of such formats takes about
    /// 2^32 hashes to find. `None` if the format is shared.
    #[doc(hidden)]
    #[must_use]
    pub fn with_id(mut self, id: FormatId) -> Option<Format> {
        Arc::get_mut(&mut self.inner)?.id = id;
        Some(self)
    }

    /// Gives a foreign layout that nobody else has yet its natural format.
    pub(crate) fn set_natural_format(&mut self, natural_format: Format) {
        if let Some(foreign) = Arc::get_mut(&mut self.inner).and_then(|inner| inner.layout.foreign.as_mut()) {
            foreign.natural_format = Some(natural_format);
        }
    }

    pub(crate) fn frame(&self) -> Frame {
        self.inner.frame
    }

    /// The fields in declared order; those of nested records stand where the record is declared.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.inner.fields
    }

    /// How the fields lie in each other: in declared order, nested records and unions with their members.
    #[must_use]
    pub fn tree(&self) -> &[Member] {
        &self.inner.tree
    }

    /// Whether no field lies in a nested record or union: the tree says no more than [`Format::fields`].
    #[must_use]
    pub fn is_flat(&self) -> bool {
        self.inner.tree.len() == self.inner.fields.len()
            && self.inner.tree.iter().all(|member| matches!(member, Member::Leaf(_)))
    }

    /// The fields as they were declared.
    #[must_use]
    pub fn specs(&self) -> Vec<FieldSpec> {
        self.specs_of(Specs::Declared)
    }

    pub(crate) fn specs_of(&self, which: Specs) -> Vec<FieldSpec> {
        self.member_specs(&self.inner.tree, which)
    }

    fn member_specs(&self, members: &[Member], which: Specs) -> Vec<FieldSpec> {
        let spec = |member: &Member| match member {
            Member::Leaf(index) => {
                let field = self.inner.fields.get(*index)?;
                let layout = &self.inner.layout;
                let nullable = match &layout.foreign {
                    Some(foreign) => foreign.puts.get(*index)?.is_nullable(which),
                    None => field.nullable && !layout.cells.get(*index)?.is_shared(),
                };
                let name = own_name(members, &self.inner.tree, *index, &field.name).to_owned();
                Some(FieldSpec { name, ty: field.type_spec_of(which), nullable, evolution: field.evolution.clone() })
            }
            Member::Group(group) => {
                let fields = self.member_specs(&group.members, which);
                let ty = if group.union.is_some() { TypeSpec::Union(fields) } else { TypeSpec::Record(fields) };
                let (name, evolution) = (group.name.clone(), group.evolution.clone());
                Some(FieldSpec { name, ty, nullable: group.nullable, evolution })
            }
        };
        members.iter().filter_map(spec).collect()
    }

    /// The index of the field of this name (names are case-sensitive), such as `pos.x` for a field of a nested record.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<usize> {
        self.inner.by_name.get(name).copied()
    }

    /// The nested record or union with these names on the way to it, such as `pos` or `msg.add`.
    #[must_use]
    pub fn group(&self, path: &str) -> Option<&Group> {
        fn find<'t>(members: &'t [Member], path: &str) -> Option<&'t Group> {
            members.iter().find_map(|member| match member {
                Member::Group(group) if group.path == path => Some(group),
                Member::Group(group) => find(&group.members, path),
                Member::Leaf(_) => None,
            })
        }
        find(&self.inner.tree, path)
    }

    /// For each field, the place in [`Format::tree`] of the member that it is or lies in.
    #[must_use]
    pub fn members(&self) -> Vec<usize> {
        let of = |(at, member): (usize, &Member)| match member {
            Member::Leaf(_) => vec![at],
            Member::Group(group) => vec![at; group.leaves.len()],
        };
        self.tree().iter().enumerate().flat_map(of).collect()
    }

    /// A natural format of only these fields, given as a flag a field: nested records are whole, or not there. `None` if
    /// there is none left.
    #[must_use]
    pub fn narrowed(&self, keep: &[bool]) -> Option<Format> {
        let mut kept = vec![false; self.tree().len()];
        for (member, keep) in self.members().into_iter().zip(keep) {
            kept[member] |= keep;
        }
        let specs = self.specs().into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(spec, _)| spec);
        Format::natural(specs).ok()
    }

    /// The format's id: the same on every machine.
    #[must_use]
    pub fn id(&self) -> FormatId {
        self.inner.id
    }

    /// The whole hash of its description; the id is a part of it.
    #[must_use]
    pub fn digest(&self) -> FormatDigest {
        self.inner.digest
    }

    /// Length in bytes of the fixed part, with the record's length and the null bitmap; a multiple of 8. Of an element,
    /// its length; of a foreign record, the least that it takes.
    #[must_use]
    pub fn fixed_bytes(&self) -> usize {
        self.inner.layout.blank.len()
    }

    /// Whether records are laid out as another program has it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.inner.layout.foreign.is_some()
    }

    /// The format in which records are made before they get the bytes of a foreign layout: the same fields in the natural
    /// layout. Those that describe others (which variant is there, how many elements, how long the record is, what is
    /// null) and those that share the bytes of others are nullable in it: null leaves them to what they describe. Of a
    /// format that is not foreign, the format itself.
    #[must_use]
    pub fn natural_format(&self) -> &Format {
        self.inner.layout.foreign.as_ref().and_then(|foreign| foreign.natural_format.as_ref()).unwrap_or(self)
    }

    /// Where the record ends that `bytes` start with; more may come.
    pub(crate) fn extent(&self, bytes: &[u8]) -> Extent {
        if let Some(foreign) = &self.inner.layout.foreign {
            return foreign.extent(self.fixed_bytes(), bytes);
        }
        let Some(word) = bytes.first_chunk() else { return Extent::Short { at_least: LENGTH_BYTES } };
        match u32::from_le_bytes(*word) as usize {
            len if len < RECORD_ALIGN || !len.is_multiple_of(RECORD_ALIGN) => Extent::Unknown,
            len if len > bytes.len() => Extent::Short { at_least: len },
            len => Extent::Whole(len),
        }
    }

    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.inner.layout
    }
}

/// The last of the names of a field: its whole name without the path of the group whose members these are. Names may have
/// dots of their own.
fn own_name<'n>(members: &[Member], tree: &[Member], index: usize, whole: &'n str) -> &'n str {
    if std::ptr::eq(members, tree) {
        return whole;
    }
    fn path_of(members: &[Member], index: usize) -> Option<&str> {
        members.iter().find_map(|member| match member {
            Member::Group(group) if group.leaves.contains(&index) => {
                Some(path_of(&group.members, index).unwrap_or(&group.path))
            }
            _ => None,
        })
    }
    let path = path_of(tree, index).map_or(0, |path| path.len() + 1);
    whole.get(path..).unwrap_or(whole)
}

impl Layout {
    pub(crate) fn of(parts: &Parts, fixed_bytes: usize) -> Self {
        let fields = &parts.fields;
        let group_of = |within: Option<usize>| within.map_or(0, |group| group as u16 + 1);
        let cells: Box<[Cell]> = (fields.iter().zip(&parts.within).zip(&parts.own_null))
            .map(|((field, within), own_null)| {
                let null = field.null_bit.map_or(Bit { byte: 0, mask: 0 }, |bit| Bit::of(parts.null_at, bit));
                Cell {
                    ty: field.ty,
                    offset: field.offset,
                    null_byte: null.byte,
                    null_mask: null.mask,
                    kind: if field.null_bit.is_some() && !own_null { CellKind::Shared } else { CellKind::Own },
                    group: group_of(*within),
                }
            })
            .collect();
        let offsets_of = |wanted: fn(FieldType) -> bool| -> Box<[u32]> {
            fields.iter().filter(|field| wanted(field.ty)).map(|field| field.offset).collect()
        };
        let has_lists = fields.iter().any(|field| field.ty == FieldType::List);
        let groups = parts
            .groups
            .iter()
            .map(|group| GroupCell { null: Bit::of(parts.null_at, group.bit), group: group_of(group.within) });
        let groups: Box<[GroupCell]> = groups.collect();
        let unions = parts.unions.iter().map(|union| UnionCell {
            variants: union.tests.iter().map(|bit| Bit::of(parts.null_at, *bit)).collect(),
            nullable: union.nullable,
            group: group_of(union.within),
            first: union.first,
        });
        let unions: Box<[UnionCell]> = unions.collect();
        let mut blank = vec![0; fixed_bytes].into_boxed_slice();
        let mut required = vec![0; fields.len().div_ceil(64)].into_boxed_slice();
        for (index, cell) in cells.iter().enumerate() {
            blank[cell.null_byte as usize] |= cell.null_mask;
            required[index / 64] |= u64::from(cell.null_mask == 0 || cell.is_shared()) << (index % 64);
        }
        for group in &groups {
            blank[group.null.byte as usize] |= group.null.mask;
        }
        let has_slots = fields.iter().any(|field| match field.element() {
            Some(element) => element.count == Count::Slot || element.format.layout().has_slots,
            None => field.ty.is_variable(),
        });
        Self {
            slots: offsets_of(FieldType::is_variable),
            bools: offsets_of(|ty| ty == FieldType::Bool),
            is_deep: has_lists || !unions.is_empty(),
            has_slots,
            has_defaults: fields.iter().any(|field| field.default_text().is_some()),
            details: fields.iter().map(|field| field.detail.clone()).collect(),
            groups,
            unions,
            cells,
            blank,
            required,
            foreign: None,
        }
    }

    pub(crate) fn foreign(fields: &[Field], foreign: ForeignLayout, fixed_bytes: usize) -> Self {
        let cells = fields.iter().map(|field| Cell {
            // A field that takes more than a load is read as lists are: apart from the loads.
            ty: if field.foreign.is_some() { FieldType::List } else { field.ty },
            offset: field.offset,
            null_byte: 0,
            null_mask: 0,
            kind: if field.foreign.is_some() { CellKind::Foreign } else { CellKind::Own },
            group: 0,
        });
        Self {
            cells: cells.collect(),
            slots: Box::default(),
            bools: Box::default(),
            groups: Box::default(),
            unions: Box::default(),
            is_deep: false,
            has_slots: foreign.needs_walk,
            has_defaults: false,
            blank: vec![0; fixed_bytes].into(),
            required: vec![0; fields.len().div_ceil(64)].into(),
            details: fields.iter().map(|field| field.detail.clone()).collect(),
            foreign: Some(Box::new(foreign)),
        }
    }

    /// The element of a list field.
    #[inline]
    pub(crate) fn element(&self, field: usize) -> Option<&Element> {
        match self.details.get(field) {
            Some(Detail::List(element)) => Some(element),
            _ => None,
        }
    }

    /// The meaning of an enumeration's numbers.
    #[inline]
    pub(crate) fn enumeration(&self, field: usize) -> Option<&Enumeration> {
        match self.details.get(field) {
            Some(Detail::Enum(enumeration)) => Some(enumeration),
            _ => None,
        }
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for Format {}

impl Hash for Format {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Format {} [{}]", self.id(), self.schema().trim_end().replace('\n', ", "))
    }
}
