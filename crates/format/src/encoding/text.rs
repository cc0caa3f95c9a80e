//! JSON and CSV behind the face of all encodings.

use std::io::BufRead;

use super::{Decoder, Encoder, Encoding, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crate::csv::{CsvDecoder, CsvEncoder, CsvOptions};
use crate::element::{Group, Member};
use crate::field::FieldType;
use crate::format::Format;
use crate::json::{JsonDecoder, JsonEncoder, JsonOptions};
use crate::record::Record;
use crate::text::NotText;

/// How the options have JSON read.
pub(super) fn json_options(options: &EncodingOptions) -> JsonOptions {
    JsonOptions {
        ignore_unknown_fields: options.ignore_unknown,
        rounds_integers: options.allows(Loss::Rounding),
        repairs_text: options.allows(Loss::InvalidText),
        max_line_bytes: options.max_item_bytes,
        ..JsonOptions::default()
    }
}

impl Decoder for JsonDecoder {
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        Ok(JsonDecoder::next_record(self, input)?)
    }

    fn restart(&mut self) {
        JsonDecoder::restart(self);
    }
}

/// JSON lines that are refused where text is not UTF-8, unless it may be repaired.
pub(super) struct JsonOutput {
    encoder: JsonEncoder,
    repairs_text: bool,
}

impl JsonOutput {
    pub(super) fn new(format: &Format, options: &EncodingOptions) -> Self {
        Self { encoder: JsonEncoder::new(format), repairs_text: options.allows(Loss::InvalidText) }
    }
}

impl Encoder for JsonOutput {
    #[inline]
    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        if self.repairs_text {
            self.encoder.record(record, out);
            return Ok(());
        }
        Ok(self.encoder.try_record(record, out)?)
    }
}

impl From<NotText> for EncodingError {
    fn from(NotText { field, found }: NotText) -> Self {
        let expected = format!("UTF-8; --allow {} has the wrong bytes replaced", Loss::InvalidText);
        EncodingError::value(format!("`{found}`"), expected).in_field(field)
    }
}

/// CSV whose header comes with the input.
pub(super) struct CsvInput {
    format: Format,
    options: CsvOptions,
    /// Whether the first row is a header.
    header: bool,
    /// There once the header has been read.
    decoder: Option<CsvDecoder>,
}

impl CsvInput {
    pub(super) fn new(format: &Format, options: &EncodingOptions) -> Self {
        let csv = CsvOptions {
            ignore_extra_columns: options.ignore_unknown || options.csv.ignore_extra_columns,
            rounds_integers: options.csv.rounds_integers || options.allows(Loss::Rounding),
            max_row_bytes: options.csv.max_row_bytes.min(options.max_item_bytes),
            ..options.csv.clone()
        };
        Self { format: format.clone(), options: csv, header: options.csv_header, decoder: None }
    }

    fn open(&self, input: &mut dyn BufRead) -> Result<CsvDecoder, EncodingError> {
        if self.header {
            return Ok(CsvDecoder::from_header(&self.format, input, &self.options)?);
        }
        let names: Vec<&str> = self.format.fields().iter().map(|field| field.name.as_str()).collect();
        Ok(CsvDecoder::new(&self.format, &names, &self.options)?)
    }
}

impl Decoder for CsvInput {
    fn start(&mut self, input: &mut dyn BufRead) -> Result<(), EncodingError> {
        if self.decoder.is_none() {
            self.decoder = Some(self.open(input)?);
        }
        Ok(())
    }

    #[inline]
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        if self.decoder.is_none() {
            self.decoder = Some(self.open(input)?);
        }
        match &mut self.decoder {
            Some(decoder) => Ok(decoder.next_record(input)?),
            None => Ok(None),
        }
    }

    fn restart(&mut self) {
        self.decoder = None;
    }
}

/// CSV with its header.
pub(super) struct CsvOutput {
    encoder: CsvEncoder,
    header: bool,
    repairs_text: bool,
    /// Nested records that may be there with nothing in them, which their columns do not show; none where that is allowed.
    bare: Vec<Group>,
}

impl CsvOutput {
    pub(super) fn new(format: &Format, options: &EncodingOptions) -> Result<Self, EncodingError> {
        let list = format.fields().iter().find(|field| field.ty == FieldType::List);
        if let Some(list) = list.filter(|_| !options.allows(Loss::ListAsJson)) {
            let (encoding, why) = (Encoding::Csv, "has no lists".to_owned());
            let problem = EncodingProblem::Lossy { encoding, why, loss: Loss::ListAsJson };
            return Err(EncodingError::new(problem).in_field(&list.name));
        }
        let repairs_text = options.allows(Loss::InvalidText);
        let mut bare = Vec::new();
        if !options.allows(Loss::Null) {
            find_bare(format, format.tree(), &mut bare);
        }
        Ok(Self { encoder: CsvEncoder::new(format, &options.csv)?, header: options.csv_header, repairs_text, bare })
    }

    /// Refuses a record in which a nested record would read back as null.
    fn check_bare(&self, record: &Record<'_>) -> Result<(), EncodingError> {
        let is_bare =
            |group: &&Group| !record.group_is_null(group) && group.leaves.clone().all(|field| record.is_null(field));
        let Some(group) = self.bare.iter().find(is_bare) else { return Ok(()) };
        let expected = format!("a field in it that is not null; --allow {} has it read back as null", Loss::Null);
        Err(EncodingError::value("a nested record with nothing in it", expected).in_field(&group.path))
    }
}

/// The nested records that may be null, with all their fields.
fn find_bare(format: &Format, members: &[Member], bare: &mut Vec<Group>) {
    for member in members {
        let Member::Group(group) = member else { continue };
        let mut fields = format.fields().get(group.leaves.clone()).unwrap_or_default().iter();
        if group.optional.is_some() && fields.all(|field| field.nullable) {
            bare.push(group.clone());
        }
        find_bare(format, &group.members, bare);
    }
}

impl Encoder for CsvOutput {
    fn start(&mut self, out: &mut Vec<u8>) {
        if self.header {
            self.encoder.header(out);
        }
    }

    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.check_bare(record)?;
        if self.repairs_text {
            self.encoder.record(record, out);
            return Ok(());
        }
        Ok(self.encoder.try_record(record, out)?)
    }
}
