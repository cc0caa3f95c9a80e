//! Items to records.

use std::io::BufRead;
use std::marker::PhantomData;

use super::Dialect;
use super::scan::Scan;
use super::tokens::ItemTokens;
use crate::encoding::window::{Attempt, Window};
use crate::encoding::{EncodingError, EncodingOptions, Loss};
use crate::format::Format;
use crate::text::Rounding;
use crate::tokens::{Flaw, Rules, Stop, TokenDecoder};

/// Reads items, each a map whose names are the format's.
#[derive(Debug)]
pub(in crate::encoding) struct ItemDecoder<D> {
    window: Window,
    scan: Scan,
    decoder: TokenDecoder,
    /// Text or bytes that came in pieces.
    pieces: Vec<u8>,
    most: usize,
    dialect: PhantomData<fn() -> D>,
}

impl<D: Dialect> ItemDecoder<D> {
    pub(in crate::encoding) fn new(format: &Format, options: &EncodingOptions) -> Self {
        let rules = Rules {
            ignore_unknown: options.ignore_unknown,
            repairs_text: options.allows(Loss::InvalidText),
            rounding: Rounding::of(options.allows(Loss::Rounding)),
            null_words: Vec::new(),
        };
        Self {
            window: Window::default(),
            scan: Scan::default(),
            decoder: TokenDecoder::new(format, rules, ItemTokens::<D>::written),
            pieces: Vec::new(),
            most: options.max_item_bytes,
            dialect: PhantomData,
        }
    }

    pub(in crate::encoding) fn restart(&mut self) {
        self.window = Window::default();
    }

    /// One item, with nothing behind it.
    pub(in crate::encoding) fn decode(&mut self, item: &[u8]) -> Result<&[u8], EncodingError> {
        let mut tokens = ItemTokens::<D>::new(item, &mut self.pieces);
        match self.decoder.item(&mut tokens) {
            Ok(()) if tokens.left() > 0 => {
                return Err(EncodingError::syntax(format!("found {} bytes behind the item", tokens.left())));
            }
            Ok(()) => {}
            Err(stop) => return Err(stop.into()),
        }
        Ok(self.decoder.finish()?)
    }

    pub(in crate::encoding) fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        let Self { window, scan, decoder, pieces, most, .. } = self;
        scan.clear();
        let outcome = window.next(input, *most, |bytes| attempt::<D>(bytes, scan, decoder, pieces))?;
        match outcome {
            None => Ok(None),
            Some(outcome) => {
                let finished = outcome.and_then(|()| Ok(decoder.finish()?));
                finished.map(Some).map_err(|error| window.place(error))
            }
        }
    }
}

/// Reads the item that the bytes start with, if it is whole.
fn attempt<D: Dialect>(
    bytes: &[u8],
    scan: &mut Scan,
    decoder: &mut TokenDecoder,
    pieces: &mut Vec<u8>,
) -> Result<Attempt<Result<(), EncodingError>>, EncodingError> {
    let short = Ok(Attempt::Short { at_least: 0 });
    if scan.is_begun() && scan.resume::<D>(bytes)?.is_none() {
        return short;
    }
    let mut tokens = ItemTokens::<D>::new(bytes, pieces);
    match decoder.item(&mut tokens) {
        Ok(()) => Ok(Attempt::Done { bytes: bytes.len() - tokens.left(), value: Ok(()) }),
        Err(Stop::Flaw(Flaw::Cut)) => {
            scan.resume::<D>(bytes)?;
            short
        }
        Err(Stop::Flaw(flaw)) => Err(flaw.into()),
        Err(stop) => {
            scan.clear();
            match scan.resume::<D>(bytes)? {
                Some(end) => Ok(Attempt::Done { bytes: end, value: Err(stop.into()) }),
                None => short,
            }
        }
    }
}
