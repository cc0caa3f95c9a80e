//! The identity of a record by the values of some of its fields.

use std::hash::{BuildHasher, Hasher, RandomState};

use crossdock_format::{FieldType, Format, Record, Value};
use crossdock_query::{Output, Program, Projection};

/// The identity of a key: 128 bits of a keyed hash of its values. Two keys share one with a probability of 2^-128, and
/// nobody can look for such keys without the hasher's secret. So an entry has one size, however long the values are.
pub type Key = u128;

/// Makes keys, with a secret of its own: keys of two hashers do not compare.
#[derive(Debug)]
pub struct KeyHasher {
    secrets: [RandomState; 2],
    /// The values of the key that is asked for.
    values: Vec<u8>,
}

impl Default for KeyHasher {
    fn default() -> KeyHasher {
        KeyHasher { secrets: [RandomState::new(), RandomState::new()], values: Vec::with_capacity(256) }
    }
}

impl KeyHasher {
    /// The key of the values of these fields.
    pub fn key_of(&mut self, record: &Record<'_>, fields: &[usize]) -> Key {
        self.values.clear();
        for &field in fields {
            append(&record.get(field), &mut self.values);
        }
        // In one piece: a hasher takes long for small ones.
        let [high, low] = [&self.secrets[0], &self.secrets[1]].map(|secret| {
            let mut hasher = secret.build_hasher();
            hasher.write(&self.values);
            u128::from(hasher.finish())
        });
        high << 64 | low
    }
}

/// The fields of a format that make the key of a record.
#[derive(Clone, Debug)]
pub struct KeyFields {
    format: Format,
    fields: Vec<usize>,
}

impl KeyFields {
    /// The fields that a program selects, unchanged.
    ///
    /// # Errors
    /// In words: one is a list, or is computed.
    pub fn of(program: &Program) -> Result<KeyFields, String> {
        let format = program.input.clone();
        let fields: Option<Vec<usize>> = match &program.projection {
            Projection::All => Some((0..format.fields().len()).collect()),
            Projection::Fields(outputs) => outputs.iter().map(Output::plain_field).collect(),
        };
        let fields = fields.ok_or("a key is made of columns, not of expressions")?;
        fields.iter().try_for_each(|field| compared(&format, *field))?;
        Ok(KeyFields { format, fields })
    }

    /// The key of a checked record of the format.
    pub fn key_of(&self, hasher: &mut KeyHasher, record: &[u8]) -> Key {
        hasher.key_of(&Record::assume_checked(&self.format, record), &self.fields)
    }
}

/// Whether the values of a field make keys.
///
/// # Errors
/// Why not, in words.
pub(crate) fn compared(format: &Format, field: usize) -> Result<(), String> {
    match &format.fields()[field] {
        field if field.ty == FieldType::List => Err(format!("`{}` is a list, and lists are not compared", field.name)),
        _ => Ok(()),
    }
}

/// Appends a value, so that equal values of fields of one kind give the same bytes, and others do not: whole
/// numbers whatever their width, decimals whatever their scale, texts whether they are padded or not, enumerations by symbol.
/// A float has other bytes than a whole number.
fn append(value: &Value<'_>, bytes: &mut Vec<u8>) {
    let mut tagged = |tag: u8, value: &[u8]| {
        bytes.push(tag);
        bytes.extend_from_slice(value);
    };
    match value {
        Value::Int(value) | Value::Timestamp(value) => tagged(1, &i128::from(*value).to_le_bytes()),
        Value::Uint(value) => tagged(1, &i128::from(*value).to_le_bytes()),
        Value::Bool(value) => tagged(1, &i128::from(*value).to_le_bytes()),
        Value::Enum { symbol: Some(symbol), .. } => append(&Value::Text(symbol.as_bytes()), bytes),
        Value::Enum { number, symbol: None } => tagged(1, &i128::from(*number).to_le_bytes()),
        Value::Decimal { unscaled, scale } => match without_zeros(*unscaled, *scale) {
            (unscaled, 0) => tagged(1, &unscaled.to_le_bytes()),
            (unscaled, scale) => {
                tagged(4, &unscaled.to_le_bytes());
                bytes.push(scale);
            }
        },
        Value::Float(value) => {
            // One zero, one NaN.
            let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
            tagged(2, &value.to_le_bytes());
        }
        Value::Text(text) | Value::Bytes(text) => {
            tagged(3, &(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text);
        }
        Value::Null | Value::List(_) | Value::Record(_) => tagged(0, &[]),
    }
}

/// The same decimal without zeros at the end of its fraction.
fn without_zeros(mut unscaled: i128, mut scale: u8) -> (i128, u8) {
    while scale > 0 && unscaled % 10 == 0 {
        unscaled /= 10;
        scale -= 1;
    }
    (unscaled, scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(value: &Value<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        append(value, &mut bytes);
        bytes
    }

    fn decimal(unscaled: i128, scale: u8) -> Vec<u8> {
        bytes(&Value::Decimal { unscaled, scale })
    }

    #[test]
    fn decimals_are_compared_as_numbers() {
        assert_eq!(decimal(150, 2), decimal(15, 1));
        assert_ne!(decimal(150, 2), decimal(150, 0));
        assert_ne!(decimal(15, 1), decimal(15, 2));
        assert_eq!(decimal(-300, 2), bytes(&Value::Int(-3)));
        assert_eq!(decimal(0, 5), bytes(&Value::Uint(0)));
        assert_ne!(decimal(3, 0), bytes(&Value::Float(3.0)));
    }

    #[test]
    fn enumerations_are_compared_by_symbol() {
        let of = |number, symbol| bytes(&Value::Enum { number, symbol });
        assert_eq!(of(1, Some("open")), of(7, Some("open")));
        assert_ne!(of(1, Some("open")), of(1, Some("shut")));
        assert_eq!(of(1, Some("open")), bytes(&Value::Text(b"open")));
        assert_eq!(of(1, None), bytes(&Value::Int(1)));
    }
}
