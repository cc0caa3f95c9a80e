//! Any foreign layout, in the text notation, and any records of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;

use crossdock_format::{Format, Member, RecordBuilder, Value};

use crate::any::RandomWords;

/// A layout, with what its fields take.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) text: String,
    pub(crate) format: Format,
    fields: Vec<Shape>,
}

#[derive(Clone, Debug)]
struct Shape {
    nullable: bool,
    kind: ValueRange,
}

#[derive(Clone, Debug)]
enum ValueRange {
    /// Derived from other fields: left out.
    Derived,
    /// From the least to the greatest, but for the one that stands for null.
    Number {
        least: i128,
        greatest: i128,
        null: Option<i128>,
    },
    Decimal {
        bits: u32,
    },
    Bool,
    F32,
    F64,
    Stamp {
        unit: i64,
        greatest: i64,
    },
    Text {
        room: usize,
        pads: bool,
    },
    Variable {
        is_text: bool,
    },
    Record(Vec<Shape>),
    Union(Vec<Shape>),
    List {
        element: Box<Shape>,
        count: Option<u64>,
        is_record: bool,
    },
}

/// The state of writing: the text, and the bits of `flags` that have been given out.
struct Writer<'s> {
    source: &'s mut RandomWords,
    text: String,
    /// Whether there are slots.
    grows: bool,
    /// Whether there are fields of variable length, with others behind them.
    has_pieces: bool,
    bits: u8,
    depth: usize,
}

pub(crate) fn layout(seed: u64) -> Layout {
    let mut source = RandomWords(seed);
    let has_pieces = source.below(3) == 0;
    let grows = source.below(3) > 0;
    let order = ["little", "big"][source.below(2) as usize];
    let mode = if has_pieces { "packed" } else { ["packed", "aligned"][source.below(2) as usize] };
    let has_union = source.below(2) == 0;
    let rule = match (grows, has_union) {
        (true, _) => " length head.len +2",
        (false, true) if mode == "packed" && source.below(2) == 0 => " size variant",
        _ => "",
    };
    let mut writer = Writer {
        source: &mut source,
        text: format!("layout foreign {order} {mode}{rule}\n"),
        grows: grows && !has_pieces,
        has_pieces,
        bits: 0,
        depth: 0,
    };
    writer.text += "head record { len u32 be; flags u16; kind u8 bits 0..4; spare u8 bits 4..8 }\nn u8\n";
    let head = ["len", "flags", "kind", "spare"].map(|_| Shape { nullable: false, kind: ValueRange::Derived });
    // Nobody sets these two of the fixed layouts, so the test does.
    let mut head = head.to_vec();
    if !grows {
        head[0].kind = ValueRange::Number { least: 0, greatest: 1000, null: None };
    }
    head[3].kind = ValueRange::Number { least: 0, greatest: 15, null: None };
    let derived_or_given = |is_derived: bool| match is_derived {
        true => ValueRange::Derived,
        false => ValueRange::Number { least: 0, greatest: 9, null: None },
    };
    let has_count = (grows || has_pieces) && writer.source.below(2) == 0;
    let mut fields = vec![];
    for index in 0..1 + writer.source.below(5) {
        fields.push(writer.field(&format!("f{index}")));
    }
    if has_union {
        fields.push(writer.union());
    }
    if has_count {
        writer.text += "rest u24[] count n\n";
        let element =
            Shape { nullable: false, kind: ValueRange::Number { least: 0, greatest: (1 << 24) - 1, null: None } };
        fields.push(Shape {
            nullable: false,
            kind: ValueRange::List { element: element.into(), count: None, is_record: false },
        });
    }
    head[1].kind = derived_or_given(writer.bits > 0);
    head[2].kind = derived_or_given(has_union);
    fields.insert(0, Shape { nullable: false, kind: ValueRange::Record(head) });
    fields.insert(1, Shape { nullable: false, kind: derived_or_given(has_count) });
    let text = writer.text;
    let format = Format::parse_schema(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Layout { text, format, fields }
}

impl Writer<'_> {
    fn field(&mut self, name: &str) -> Shape {
        let start = self.text.len();
        let _ = write!(self.text, "{name} ");
        let may_vary = self.has_pieces && self.depth == 0;
        match self.source.below(10) {
            3 if may_vary => {
                let (ty, is_text) = [("string", true), ("bytes", false)][self.source.below(2) as usize];
                let place = match self.source.below(4) {
                    0 if is_text => "until nul",
                    other => ["inline varint", "inline u16 be", "inline u8", "inline u24"][other as usize],
                };
                let _ = write!(self.text, "{ty} {place}");
                let nullable = self.null_bit();
                self.text.push('\n');
                Shape { nullable, kind: ValueRange::Variable { is_text } }
            }
            5 if may_vary => {
                let mut shape = self.varint();
                if !shape.nullable {
                    shape.nullable = self.null_bit();
                }
                self.text.push('\n');
                shape
            }
            0 if self.depth < 3 => self.record(),
            1 | 2 if self.depth < 3 => self.list(),
            3 if self.grows => {
                let (ty, is_text) = [("string", true), ("bytes", false)][self.source.below(2) as usize];
                let slot = self.slot();
                let _ = write!(self.text, "{ty} {slot}");
                let nullable = self.null_bit();
                self.text.push('\n');
                Shape { nullable, kind: ValueRange::Variable { is_text } }
            }
            4 => {
                // Two halves of the same bytes.
                self.text.truncate(start);
                let cut = 1 + self.source.below(14);
                let _ = writeln!(self.text, "{name} record {{ a u16 bits 0..{cut}; b i16 bits {cut}..16 }}");
                let (low, high) = (1_i128 << cut, 1_i128 << (15 - cut));
                let part = |least, greatest| Shape {
                    nullable: false,
                    kind: ValueRange::Number { least, greatest, null: None },
                };
                Shape { nullable: false, kind: ValueRange::Record(vec![part(0, low - 1), part(-high, high - 1)]) }
            }
            _ => {
                let mut shape = self.scalar();
                if !shape.nullable {
                    shape.nullable = self.null_bit();
                }
                self.text.push('\n');
                shape
            }
        }
    }

    /// Now and then, a bit of `flags`, where these can be seen.
    fn null_bit(&mut self) -> bool {
        if self.depth > 0 || self.bits == 16 || self.source.below(3) > 0 {
            return false;
        }
        let unless = ["", "unless "][self.source.below(2) as usize];
        let _ = write!(self.text, " null {unless}bit {} of head.flags", self.bits);
        self.bits += 1;
        true
    }

    fn slot(&mut self) -> String {
        let width = ["u16", "u24", "u32", "u64"];
        let (start, len) = (width[1 + self.source.below(3) as usize], width[self.source.below(4) as usize]);
        let base = [String::new(), " base 4".to_owned()][self.source.below(2) as usize].clone();
        format!("slot {start} {len}{base}{}", ["", " be", " le"][self.source.below(3) as usize])
    }

    fn record(&mut self) -> Shape {
        self.depth += 1;
        self.text += "record {\n";
        let fields = (0..1 + self.source.below(3)).map(|index| self.field(&format!("g{index}"))).collect();
        self.text.push('}');
        self.depth -= 1;
        let nullable = self.null_bit();
        self.text.push('\n');
        Shape { nullable, kind: ValueRange::Record(fields) }
    }

    fn list(&mut self) -> Shape {
        let is_record = self.source.below(2) == 0;
        let varies = self.has_pieces && self.depth == 0 && self.source.below(3) > 0;
        let place = self.text.len();
        let (element, mut tail) = if is_record {
            self.depth += 1;
            self.text += "record {\n";
            let fields = (0..1 + self.source.below(3)).map(|index| self.field(&format!("e{index}"))).collect();
            self.depth -= 1;
            self.text.push('}');
            (Shape { nullable: false, kind: ValueRange::Record(fields) }, String::new())
        } else {
            let mut shape = self.scalar();
            while shape.nullable || self.text[place..].contains("bits") {
                self.text.truncate(place);
                shape = self.scalar();
            }
            let written = self.text.split_off(place);
            let (ty, tail) = match written.find(") ").map(|at| at + 1).or_else(|| written.find("} ").map(|at| at + 1)) {
                Some(at) => written.split_at(at),
                None if written.contains('(') || written.contains('{') => (written.as_str(), ""),
                None => written.split_at(written.find(' ').unwrap_or(written.len())),
            };
            self.text += ty;
            (shape, tail.to_owned())
        };
        let count =
            if varies || self.grows && self.source.below(3) > 0 { None } else { Some(1 + self.source.below(3)) };
        let _ = match count {
            None if varies => {
                let ways =
                    ["inline u8", "inline varint", "inline u16", "group u16 u8", "group u16 u24", "group u8 u8 head 8"];
                write!(self.text, "[] {}{tail}", ways[self.source.below(6) as usize])
            }
            None => {
                let slot = self.slot();
                if slot.ends_with('e') {
                    tail = tail.replace(" be", "").replace(" le", "");
                }
                write!(self.text, "[] {slot}{tail}")
            }
            Some(count) => write!(self.text, "[{count}]{tail}"),
        };
        self.text.push('\n');
        Shape { nullable: false, kind: ValueRange::List { element: element.into(), count, is_record } }
    }

    /// A union on `head.kind`; its second variant has two values.
    fn union(&mut self) -> Shape {
        self.text += "msg union on head.kind {\n";
        self.depth += 1;
        let mut variants = Vec::new();
        for (index, cases) in ["1", "0 2", "9"].into_iter().enumerate() {
            let _ = write!(self.text, "{cases} => ");
            variants.push(self.field(&format!("v{index}")));
        }
        self.depth -= 1;
        self.text += "}\n";
        // Where the record ends with its variant, there is one.
        let must_be = self.text.contains("size variant") || (self.has_pieces && !self.text.contains("length"));
        Shape { nullable: !must_be, kind: ValueRange::Union(variants) }
    }

    fn scalar(&mut self) -> Shape {
        let order = ["", " be", " le"][self.source.below(3) as usize];
        let shape = |kind| Shape { nullable: false, kind };
        match self.source.below(9) {
            0 => {
                let size = [1_u8, 4][self.source.below(2) as usize];
                let _ = write!(self.text, "bool size {size}");
                shape(ValueRange::Bool)
            }
            1 => {
                let (ty, kind) =
                    [("f32", ValueRange::F32), ("f64", ValueRange::F64)][self.source.below(2) as usize].clone();
                let null = ["", " null if = nan", " null if = 0.5"][self.source.below(3) as usize];
                let _ = write!(self.text, "{ty}{order}{null}");
                Shape { nullable: !null.is_empty(), kind }
            }
            2 => {
                let (room, pads) = (1 + self.source.below(9) as usize, self.source.below(2) == 0);
                let null = ["", " null if = \"-\""][self.source.below(2) as usize];
                let _ = write!(self.text, "char[{room}]{}{null}", if pads { " pad space" } else { "" });
                Shape { nullable: !null.is_empty(), kind: ValueRange::Text { room, pads } }
            }
            3 => {
                let (unit, nanoseconds) =
                    [("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)][self.source.below(4) as usize];
                let size = 3 + self.source.below(6);
                let _ = write!(self.text, "timestamp size {size} unit {unit}{order}");
                let greatest = (1_i128 << (8 * size - 1).min(62)).min(i128::from(i64::MAX / nanoseconds));
                shape(ValueRange::Stamp { unit: nanoseconds, greatest: greatest as i64 })
            }
            4 => {
                let bytes = [4_u8, 8, 16][self.source.below(3) as usize];
                let _ = write!(self.text, "decimal({bytes}, scale 2){order}");
                shape(ValueRange::Decimal { bits: 8 * u32::from(bytes) })
            }
            5 => {
                let _ = write!(self.text, "enum i16 {{ A = 1, B = -2 }}{order}");
                shape(ValueRange::Number { least: -3, greatest: 9, null: None })
            }
            _ => self.number(order),
        }
    }

    /// A number of as many bytes as it needs.
    fn varint(&mut self) -> Shape {
        let bytes = [1_u8, 2, 4, 8][self.source.below(4) as usize];
        let bits = 8 * u32::from(bytes);
        let signed = self.source.below(2) == 0;
        let (letter, way) = if signed { ('i', "zigzag") } else { ('u', "varint") };
        let _ = write!(self.text, "{letter}{bits} {way}");
        let (least, greatest) = match signed {
            true => (-(1_i128 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        };
        let null = (self.source.below(4) == 0).then_some(greatest);
        if let Some(null) = null {
            let _ = write!(self.text, " null if = {null}");
        }
        Shape { nullable: null.is_some(), kind: ValueRange::Number { least, greatest, null } }
    }

    fn number(&mut self, order: &str) -> Shape {
        let bytes = 1 + self.source.below(8);
        let signed = self.source.below(2) == 0;
        let bits = 8 * bytes;
        let _ = write!(self.text, "{}{bits}{order}", if signed { 'i' } else { 'u' });
        let (least, greatest) = match signed {
            true => (-(1_i128 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        };
        let null = (self.source.below(4) == 0).then_some(greatest);
        if let Some(null) = null {
            let _ = write!(self.text, " null if = {null}");
        }
        Shape { nullable: null.is_some(), kind: ValueRange::Number { least, greatest, null } }
    }
}

impl Layout {
    /// Gives the builder's fields values out of the source.
    pub(crate) fn fill(&self, builder: &mut RecordBuilder, source: &mut RandomWords) {
        let tree = self.format.tree();
        tree.iter().zip(&self.fields).for_each(|(member, shape)| fill(builder, member, shape, source));
    }
}

fn fill(builder: &mut RecordBuilder, member: &Member, shape: &Shape, source: &mut RandomWords) {
    if shape.nullable && source.below(3) == 0 {
        return;
    }
    there(builder, member, shape, source);
}

fn there(builder: &mut RecordBuilder, member: &Member, shape: &Shape, source: &mut RandomWords) {
    match (member, &shape.kind) {
        (Member::Group(group), ValueRange::Record(fields)) => {
            builder.set_group_present(group);
            group.members.iter().zip(fields).for_each(|(member, shape)| fill(builder, member, shape, source));
        }
        (Member::Group(group), ValueRange::Union(variants)) => {
            let variant = source.below(variants.len() as u64) as usize;
            there(builder, &group.members[variant], &variants[variant], source);
        }
        (Member::Leaf(_), ValueRange::Derived) => {}
        (Member::Leaf(field), ValueRange::List { element, count, is_record }) => {
            builder.begin_list(*field).unwrap();
            for _ in 0..count.unwrap_or_else(|| source.below(4)) {
                match (is_record, &element.kind) {
                    (true, ValueRange::Record(fields)) => {
                        builder.begin_element().unwrap();
                        let tree = builder.format().tree().to_vec();
                        tree.iter().zip(fields).for_each(|(member, shape)| fill(builder, member, shape, source));
                        builder.end_element().unwrap();
                    }
                    (_, kind) => value(kind, source, |value| builder.push(value).unwrap()),
                }
            }
            builder.end_list().unwrap();
        }
        (Member::Leaf(field), kind) => value(kind, source, |value| builder.set(*field, value).unwrap()),
        other => unreachable!("{other:?}"),
    }
}

fn value(kind: &ValueRange, source: &mut RandomWords, put: impl FnOnce(Value<'_>)) {
    let number = source.next();
    put(match kind {
        ValueRange::Number { least, greatest, null } => {
            let value = least + i128::from(number) % (greatest - least + 1);
            let value = if Some(value) == *null { *least } else { value };
            i64::try_from(value).map_or(Value::Uint(value as u64), Value::Int)
        }
        ValueRange::Decimal { bits } => {
            let wide = i128::from(number) * i128::from(number as i64);
            Value::Decimal { unscaled: wide >> (128 - bits), scale: 2 }
        }
        ValueRange::Bool => Value::Bool(number.is_multiple_of(2)),
        ValueRange::F32 => Value::Float(f64::from(number as i16) / 64.0 + 1000.0),
        ValueRange::F64 => Value::Float(number as f64 / 1e9 + 1000.0),
        ValueRange::Stamp { unit, greatest } => Value::Timestamp((number >> 1) as i64 % greatest * unit),
        ValueRange::Text { room, pads } => {
            let text = &b"ab c\0d  e"[..(number as usize % 10).min(*room)];
            let is_padding = |byte: &u8| *byte == 0 || (*pads && *byte == b' ');
            let end = text.iter().rposition(|byte| !is_padding(byte)).map_or(0, |at| at + 1);
            Value::Text(&text[..end])
        }
        ValueRange::Variable { is_text: true } => Value::Text(&b"variable"[..number as usize % 9]),
        ValueRange::Variable { .. } => Value::Bytes(&[0, 0xff, 3][..number as usize % 4]),
        other => unreachable!("{other:?}"),
    });
}
