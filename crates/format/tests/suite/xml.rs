//! XML: what is written reads back, other people's documents are read, and what is wrong is named.
#![cfg(feature = "xml")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::BufReader;

use crate::any::{payload as any_payload, records as any_records};
use crate::arbitrary::{Owned, payload, rows};
use crate::tree::Tree;
use crossdock_format::encoding::xml::{XmlDecoder, XmlEncoder};
use crossdock_format::encoding::{Decoder, Encoder, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crossdock_format::{FieldSpec, Format, MAX_NESTING, Record, Value};
use proptest::prelude::*;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

const SCHEMA: &str = "id u32\nname string null\nprice f64 null\nok bool null\nat timestamp null\nraw bytes null";

fn format() -> Format {
    Format::parse_schema(SCHEMA).unwrap()
}

fn encode(format: &Format, payload: &[u8], options: &EncodingOptions) -> Result<Vec<u8>, EncodingError> {
    let mut encoder = XmlEncoder::new(format, options)?;
    let mut text = Vec::new();
    encoder.start(&mut text);
    let (mut rest, mut outcome) = (payload, Ok(()));
    while let Ok(record) = Record::check(format, rest) {
        outcome = outcome.and(encoder.record(&record, &mut text));
        rest = &rest[record.bytes().len()..];
    }
    encoder.finish(&mut text)?;
    outcome.map(|()| text)
}

/// All records, back to back, and the errors.
fn decode(
    format: &Format,
    text: &[u8],
    buffer_bytes: usize,
    options: &EncodingOptions,
) -> (Vec<u8>, Vec<EncodingError>) {
    let mut decoder = XmlDecoder::new(format, options);
    let mut input = BufReader::with_capacity(buffer_bytes, text);
    let (mut payload, mut errors) = (Vec::new(), Vec::new());
    loop {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => return (payload, errors),
            Err(error) => {
                let goes_on = error.is_item();
                errors.push(error);
                if !goes_on {
                    return (payload, errors);
                }
            }
        }
    }
}

/// The records of a sound document.
fn read(text: &str, options: &EncodingOptions) -> Vec<Vec<String>> {
    let format = format();
    let (payload, errors) = decode(&format, text.as_bytes(), 7, options);
    assert!(errors.is_empty(), "{errors:?} in {text}");
    let (mut rest, mut rows) = (&payload[..], Vec::new());
    while let Ok(record) = Record::check(&format, rest) {
        rows.push((0..6).map(|field| format!("{:?}", record.get(field))).collect());
        rest = &rest[record.bytes().len()..];
    }
    rows
}

/// The first error of a document, in words, and how many records came before and after it.
fn error(text: &str) -> (String, usize) {
    let format = format();
    let (payload, errors) = decode(&format, text.as_bytes(), 1 << 16, &EncodingOptions::default());
    let records = format.check_records(&payload, |_, _| {}).unwrap();
    (errors.first().expect("an error").to_string(), records)
}

/// An element with all that is in it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Element {
    name: String,
    /// Whether it has the attribute that says that it is there without anything in it.
    is_marked: bool,
    text: String,
    children: Vec<Element>,
}

impl Element {
    fn write(&self, writer: &mut quick_xml::Writer<Vec<u8>>) {
        let mut start = BytesStart::new(&*self.name);
        if self.is_marked {
            start.push_attribute(("xmlns:x", "http://www.w3.org/2001/XMLSchema-instance"));
            start.push_attribute(("x:nil", "false"));
        }
        writer.write_event(Event::Start(start)).unwrap();
        writer.write_event(Event::Text(BytesText::new(&self.text))).unwrap();
        self.children.iter().for_each(|child| child.write(writer));
        writer.write_event(Event::End(BytesEnd::new(&*self.name))).unwrap();
    }
}

/// The elements in a document's root, as quick-xml sees them.
fn parsed(text: &str) -> Vec<Element> {
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().enable_all_checks(true);
    reader.config_mut().expand_empty_elements = true;
    let mut open = vec![Element::default()];
    loop {
        let event = reader.read_event().unwrap();
        let top = open.last_mut().unwrap();
        match event {
            Event::Start(tag) => {
                let name = tag.name().as_ref().to_owned();
                open.push(Element { name, is_marked: tag.attributes().next().is_some(), ..Element::default() });
            }
            Event::Text(text) => top.text.push_str(&text.xml10_content()),
            Event::GeneralRef(reference) => match reference.resolve_char_ref().unwrap() {
                Some(c) => top.text.push(c),
                None => top.text.push_str(quick_xml::escape::resolve_xml_entity(&reference).unwrap()),
            },
            Event::End(_) => {
                let done = open.pop().unwrap();
                open.last_mut().unwrap().children.push(done);
            }
            Event::Decl(_) => {}
            Event::Eof => break,
            other => panic!("nothing of this is written: {other:?}"),
        }
    }
    open.remove(0).children.remove(0).children
}

/// Whether elements are the same; of a float, not the digits but the number counts.
fn agree(found: &[Element], expected: &[Element]) -> bool {
    let same_text = |found: &str, expected: &str| match (found.parse::<f64>(), expected.parse::<f64>()) {
        (Ok(one), Ok(other)) if one != other => one as f32 == other as f32 && found.parse() == Ok(one as f32),
        (Ok(_), Ok(_)) => true,
        _ => found == expected,
    };
    let same = |found: &Element, expected: &Element| {
        (&found.name, found.is_marked) == (&expected.name, expected.is_marked)
            && same_text(&found.text, &expected.text)
            && agree(&found.children, &expected.children)
    };
    found.len() == expected.len() && found.iter().zip(expected).all(|(found, expected)| same(found, expected))
}

/// The elements that records are.
fn expected(records: &[Record<'_>]) -> Vec<Element> {
    let mut root = Element::default();
    records.iter().for_each(|record| put(&mut root, "record", Tree::of(record)));
    root.children
}

/// A value as elements of a name in another one.
fn put(parent: &mut Element, name: &str, tree: Tree) {
    let mut element = Element { name: name.to_owned(), ..Element::default() };
    match tree {
        Tree::Null => return,
        Tree::List(elements, nullable) => {
            element.is_marked = elements.is_empty() && nullable;
            if element.is_marked {
                parent.children.push(element);
            }
            for value in elements {
                match value {
                    Tree::List(inner, _) => {
                        let mut outer = Element { name: name.to_owned(), ..Element::default() };
                        put(&mut outer, "item", Tree::List(inner, false));
                        parent.children.push(outer);
                    }
                    value => put(parent, name, value),
                }
            }
            return;
        }
        Tree::Object(members) => members.into_iter().for_each(|(name, member)| put(&mut element, &name, member)),
        Tree::Bool(value) => element.text = value.to_string(),
        Tree::Int(value) => element.text = value.to_string(),
        Tree::Float(value) if value.is_infinite() => element.text = if value > 0.0 { "INF" } else { "-INF" }.to_owned(),
        Tree::Float(value) => element.text = value.to_string(),
        Tree::Decimal(text) | Tree::Text(text) => element.text = text,
    }
    parent.children.push(element);
}

proptest! {
    #[test]
    fn records_read_back((format, rows) in rows(), buffer_bytes in 1_usize..300, element in "[a-z]{1,8}") {
        // Any names but those that are none in XML.
        let specs = format.fields().iter().enumerate().map(|(index, field)| {
            let word: String = field.name.chars().filter(|c| c.is_alphanumeric() && c.is_ascii()).collect();
            FieldSpec { nullable: field.nullable, ..FieldSpec::new(format!("n{index}.{word}"), field.type_spec()) }
        });
        let format = Format::natural(specs).unwrap();
        let payload = payload(&format, &rows);
        let options = EncodingOptions { xml_element: Some(element), ..EncodingOptions::default() };
        // Control characters are refused; without them all reads back.
        let has_controls = rows.iter().flatten().any(|value| {
            matches!(value, Owned::Text(text) if text.chars().any(|c| c < ' ' && !"\t\n\r".contains(c)))
        });
        prop_assume!(!has_controls);
        let text = encode(&format, &payload, &options).unwrap();
        let (back, errors) = decode(&format, &text, buffer_bytes, &options);
        prop_assert!(errors.is_empty(), "{errors:?} in {}", String::from_utf8_lossy(&text));
        prop_assert_eq!(&back, &payload);
        let (back, errors) = decode(&format, &text, buffer_bytes, &EncodingOptions::default());
        prop_assert!(errors.is_empty(), "{errors:?}");
        prop_assert_eq!(back, payload);
    }

    #[test]
    fn nested_records_lists_and_unions_read_back((format, payload) in any_payload(), buffer_bytes in 1_usize..300) {
        let text = encode(&format, &payload, &EncodingOptions::default()).unwrap();
        let (back, errors) = decode(&format, &text, buffer_bytes, &EncodingOptions::default());
        prop_assert!(errors.is_empty(), "{errors:?} in {}", String::from_utf8_lossy(&text));
        prop_assert_eq!(
            any_records(&format, &back), any_records(&format, &payload), "{}", String::from_utf8_lossy(&text)
        );
    }

    #[test]
    fn quick_xml_reads_what_is_written((format, rows) in rows()) {
        let payload = payload(&format, &rows);
        let Ok(text) = encode(&format, &payload, &EncodingOptions::default()) else { return Ok(()) };
        let elements = parsed(str::from_utf8(&text).unwrap());
        let expected = expected(&any_records(&format, &payload));
        prop_assert!(agree(&elements, &expected), "{elements:#?}\n{expected:#?}");
    }

    #[test]
    fn quick_xml_and_we_read_each_others_nested_records((format, payload) in any_payload(), buffer_bytes in 1_usize..300) {
        let records = any_records(&format, &payload);
        let elements = expected(&records);
        let text = encode(&format, &payload, &EncodingOptions::default()).unwrap();
        let found = parsed(str::from_utf8(&text).unwrap());
        prop_assert!(agree(&found, &elements), "{found:#?}\n{elements:#?}");
        let mut writer = quick_xml::Writer::new(Vec::new());
        writer.write_event(Event::Start(BytesStart::new("feed"))).unwrap();
        elements.iter().for_each(|element| element.write(&mut writer));
        writer.write_event(Event::End(BytesEnd::new("feed"))).unwrap();
        let theirs = writer.into_inner();
        let (back, errors) = decode(&format, &theirs, buffer_bytes, &EncodingOptions::default());
        let theirs = String::from_utf8(theirs).unwrap();
        prop_assert!(errors.is_empty(), "{errors:?} in {theirs}");
        prop_assert_eq!(any_records(&format, &back), records, "{}", theirs);
    }

    #[test]
    fn bytes_that_were_changed_end_in_errors_and_not_in_panics(
        (format, rows) in rows(), changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4), cut in any::<usize>()
    ) {
        let Ok(mut text) = encode(&format, &payload(&format, &rows), &EncodingOptions::default()) else { return Ok(()) };
        for (at, byte) in changes {
            let at = at % text.len();
            text[at] = byte;
        }
        text.truncate(cut % (text.len() + 1));
        let (whole, errors) = decode(&format, &text, 1 << 16, &EncodingOptions::default());
        let (parts, same) = decode(&format, &text, 3, &EncodingOptions::default());
        prop_assert_eq!(whole, parts);
        prop_assert_eq!(format!("{errors:?}"), format!("{same:?}"));
    }
}

#[test]
fn fields_are_elements_or_attributes_in_any_order_with_or_without_prefixes() {
    let text = "\u{feff}<?xml version='1.0' encoding='utf-8'?><!-- a feed --><?pi x?>
        <m:feed xmlns:m='urn:m' xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' version='3'>
          <m:quote id='7' price='1.5'><m:name xml:lang='en'>A &amp; B &#x3c;3 <![CDATA[<&amp;>]]></m:name></m:quote>
          <m:quote><raw>aG\n k=</raw><ok> 1 </ok><!-- the last --><id>8</id><name xsi:nil='true'/><at/></m:quote>
          <m:quote id='9'><name/><price>-INF</price><at>2013-01-01T10:00:00Z</at></m:quote><quote id='10'/>
        </m:feed>\n";
    let rows = read(text, &EncodingOptions::default());
    assert_eq!(rows.len(), 4);
    let name = format!("{:?}", Value::Text(b"A & B <3 <&amp;>"));
    assert_eq!(rows[0], ["Uint(7)", &name, "Float(1.5)", "Null", "Null", "Null"]);
    assert_eq!(rows[1], ["Uint(8)", "Null", "Null", "Bool(true)", "Null", &format!("{:?}", Value::Bytes(b"hi"))]);
    assert_eq!(rows[2], ["Uint(9)", "Text(\"\")", "Float(-inf)", "Null", "Timestamp(1357034400000000000)", "Null"]);
    let quotes = EncodingOptions { xml_element: Some("quote".to_owned()), ..EncodingOptions::default() };
    assert_eq!(read(text, &quotes), rows);
}

#[test]
fn a_byte_order_mark_is_one_at_the_start_only_whatever_the_buffer() {
    let format = Format::parse_schema("id u8").unwrap();
    let count = |payload: &[u8]| format.check_records(payload, |_, _| {}).unwrap();
    let row = "<r><id>1</id></r>";
    for buffer_bytes in [1, 2, 3, 4, 1000] {
        let outcome = |text: &str| decode(&format, text.as_bytes(), buffer_bytes, &EncodingOptions::default());
        let (payload, errors) = outcome(&format!("\u{feff}<f>{row}{row}</f>"));
        assert_eq!((count(&payload), errors.len()), (2, 0), "{buffer_bytes}: {errors:?}");
        let (payload, errors) = outcome(&format!("<f>{row}\u{feff}{row}</f>"));
        assert_eq!((count(&payload), errors.len()), (1, 1), "{buffer_bytes}: {errors:?}");
        assert!(format!("{errors:?}").contains("text between records"), "{errors:?}");
        let mut cut = std::io::BufReader::with_capacity(buffer_bytes, &b"\xef\xbb<f/>"[..]);
        let error = XmlDecoder::new(&format, &EncodingOptions::default()).next_record(&mut cut).unwrap_err();
        assert!(error.to_string().contains("byte order mark that is cut short"), "{error}");
    }
}

#[test]
fn records_lie_at_any_depth_where_they_are_named() {
    let quotes = EncodingOptions { xml_element: Some("quote".to_owned()), ..EncodingOptions::default() };
    let text = "<a><title>Quotes &amp; more</title><b><quote id='1'/></b><quote id='2'><name>x\r\ny</name></quote></a>";
    let rows = read(text, &quotes);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[1][1], format!("{:?}", Value::Text(b"x\ny")));
    // A record may be all that there is, and one document may follow another.
    assert_eq!(read("<quote id='1'/>\n<?xml version='1.0'?><quote id='2'></quote>", &quotes).len(), 2);
    assert_eq!(read("<none/>", &quotes).len(), 0);
}

#[test]
fn wrong_records_are_named_and_the_next_one_is_read() {
    for (record, said) in [
        ("<r id='x'/>", "field `id`: found `x`, expected u32 (0 to 4294967295)"),
        ("<r id='-1'/>", "field `id`: found `-1`, expected u32"),
        ("<r><id>4294967296</id></r>", "field `id`: found `4294967296`"),
        ("<r/>", "field `id`: it is missing, and the field is not nullable"),
        ("<r><id/></r>", "field `id`: found ``, expected u32"),
        ("<r xmlns:x='y'><id x:nil='1'/></r>", "field `id`: found null, expected u32"),
        ("<r id='1'><id>1</id></r>", "field `id`: it is there twice"),
        ("<r id='1'><name>a</name><name>b</name></r>", "field `name`: it is there twice"),
        ("<r id='1'><nmae/></r>", "field `nmae`: the format has no such field; it has: id, name, price"),
        ("<r id='1' nmae=''/>", "field `nmae`: the format has no such field"),
        ("<r id='1'><name>a<b/></name></r>", "field `name`: found an element `b`, expected string"),
        ("<r id='1'><name lang='en'>a</name></r>", "field `name`: found an attribute `lang`"),
        ("<r id='1'>text</r>", "found the text `text`, expected elements"),
        ("<r id='1'><price>1e999</price></r>", "field `price`: found `1e999`"),
        ("<r id='1'><at>yesterday</at></r>", "field `at`: found `yesterday`, expected timestamp (RFC 3339"),
        ("<r id='1'><raw>?</raw></r>", "field `raw`: found `?`, expected bytes (base64)"),
    ] {
        let (found, records) = error(&format!("<rs><r id='5'/>{record}<r id='6'/></rs>"));
        assert!(found.starts_with("item 2, byte ") && found.contains(said), "{record}: {found}");
        assert_eq!(records, 2, "{record}");
    }
    let lenient = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    let text = "<rs><r id='1' x='?'>text<deep><id>3</id>&lt;</deep><name lang='en'>a</name></r></rs>";
    assert_eq!(read(text, &lenient)[0][..2], ["Uint(1)".to_owned(), format!("{:?}", Value::Text(b"a"))]);
}

#[test]
fn bytes_that_are_no_xml_end_the_reading() {
    let deep = format!("{}<r id='1'/>", "<a>".repeat(MAX_NESTING + 1));
    let deep_record = format!("<rs><r id='1'>{}", "<name>".repeat(MAX_NESTING + 1));
    for (text, said) in [
        ("", "found nothing, expected an XML document"),
        ("{}", "found text between records"),
        ("<rs>", "the input ends in the middle of it"),
        ("<rs><r id='1'>", "the input ends in the middle of it"),
        ("<rs><r id='1'><name>a</r></rs>", "name"),
        ("<rs></sr>", "</rs>"),
        ("<rs><r id='0'/></sr>", "found </sr>, expected </rs>"),
        ("</rs>", "expected an element's start"),
        ("<rs>text</rs>", "found text between records"),
        ("<rs>&lt;</rs>", "found text between records"),
        ("<rs><r id='1' id='2'/></rs>", "duplicate"),
        ("<rs><r id=1/></rs>", "enclosed in"),
        ("<rs><r id='1'><name>&e;</name></r></rs>", "found the entity `&e;`, expected one of amp"),
        ("<rs><r id='&e;'/></rs>", "e"),
        ("<rs><r id='1'><name>&#x110000;</name></r></rs>", "character"),
        ("<rs><r id='1'><!DOCTYPE r></r></rs>", "declaration in the middle"),
        (
            "<?xml version='1.0' encoding='iso-8859-1'?><rs/>",
            "found the character encoding `iso-8859-1`, expected UTF-8",
        ),
        (
            "<!DOCTYPE rs [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><rs><r id='1'><name>&e;</name></r></rs>",
            "document type",
        ),
        ("<!DOCTYPE rs [<!ENTITY a 'aa'><!ENTITY b '&a;&a;'>]><rs/>", "document type declaration, which is not read"),
        (&deep, "more than 48 levels deep"),
        (&deep_record, "more than 48 levels deep"),
    ] {
        let format = format();
        let (_, errors) = decode(&format, text.as_bytes(), 1 << 16, &EncodingOptions::default());
        let error = errors.last().expect(text);
        assert!(!error.is_item() && error.to_string().contains(said), "{text}: {error}");
    }
    let (payload, errors) =
        decode(&format(), b"<rs><r id='1'><name>\xff</name></r></rs>", 10, &EncodingOptions::default());
    assert!(payload.is_empty() && !errors[0].is_item(), "{errors:?}");
}

#[test]
fn items_are_bounded_and_inputs_are_not() {
    let options = EncodingOptions { max_item_bytes: 100, ..EncodingOptions::default() };
    let many = format!("<rs>{}</rs>", "<r id='1'/><!-- a note -->\n".repeat(100));
    assert_eq!(read(&many, &options).len(), 100);
    for long in [
        format!("<rs><r id='1'><name>{}</name></r></rs>", "x".repeat(200)),
        format!("<rs><r id='1'>{}</r></rs>", "<name/>".repeat(50)),
        format!("<rs><!--{}--></rs>", "x".repeat(200)),
        format!("<rs><r {}", "x".repeat(200)),
    ] {
        let (_, errors) = decode(&format(), long.as_bytes(), 1 << 16, &options);
        let last = errors.last().expect("an error");
        assert!(matches!(last.problem, EncodingProblem::TooLong { most: 100, .. }), "{long}: {last}");
    }
}

#[test]
fn floats_that_are_no_numbers_read_back() {
    let format = Format::parse_schema("a f32\nb f64").unwrap();
    let mut builder = crossdock_format::RecordBuilder::new(&format);
    builder.set_f64(0, f64::NAN).unwrap();
    builder.set_f64(1, f64::NEG_INFINITY).unwrap();
    let payload = builder.finish().unwrap().to_vec();
    let text = encode(&format, &payload, &EncodingOptions::default()).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("<a>NaN</a><b>-INF</b>"), "{text}");
    let (back, errors) = decode(&format, text.as_bytes(), 10, &EncodingOptions::default());
    assert!(errors.is_empty(), "{errors:?}");
    let record = Record::check(&format, &back).unwrap();
    assert!(matches!(record.get(0), Value::Float(value) if value.is_nan()));
    assert_eq!(record.get(1), Value::Float(f64::NEG_INFINITY));
}

#[test]
fn values_that_xml_cannot_hold_are_refused_unless_allowed() {
    let allowing = EncodingOptions { allow: vec![Loss::InvalidText], ..EncodingOptions::default() };
    let format = format();
    let mut builder = crossdock_format::RecordBuilder::new(&format);
    for (name, found) in [(&b"a\0b"[..], "a\\0b"), (b"\xff\xfe", "no UTF-8"), ("\u{ffff}".as_bytes(), "\u{ffff}")] {
        builder.clear();
        builder.set_u64(0, 1).unwrap();
        builder.set_text(1, name).unwrap();
        let payload = builder.finish().unwrap().to_vec();
        let error = encode(&format, &payload, &EncodingOptions::default()).unwrap_err();
        assert!(error.is_item() && error.field.as_deref() == Some("name"), "{error}");
        let words = error.to_string();
        assert!(words.contains("--allow invalid-text"), "{found}: {words}");
        let text = encode(&format, &payload, &allowing).unwrap();
        let (back, errors) = decode(&format, &text, 100, &allowing);
        assert!(errors.is_empty(), "{errors:?}");
        let record = Record::check(&format, &back).unwrap();
        assert!(matches!(record.get(1), Value::Text(text) if text.windows(3).any(|c| c == "\u{fffd}".as_bytes())));
    }
    // A refused record leaves nothing behind.
    let mut encoder = XmlEncoder::new(&format, &EncodingOptions::default()).unwrap();
    builder.clear();
    builder.set_u64(0, 1).unwrap();
    builder.set_text(1, b"\0x").unwrap();
    let mut out = b"before".to_vec();
    assert!(encoder.record(&Record::check(&format, builder.finish().unwrap()).unwrap(), &mut out).is_err());
    assert_eq!(out, b"before");
    for name in ["a b", "1a", "-a", "a:b", "a<"] {
        let format = Format::natural([FieldSpec::new(name, crossdock_format::FieldType::Bool)]).unwrap();
        let error = XmlEncoder::new(&format, &EncodingOptions::default()).unwrap_err();
        assert_eq!(error.field.as_deref(), Some(name));
    }
    let bad = EncodingOptions { xml_element: Some("a b".to_owned()), ..EncodingOptions::default() };
    assert!(XmlEncoder::new(&format, &bad).is_err());
}

#[test]
fn nested_elements_are_nested_records_lists_and_unions() {
    let schema = "id u32\npos record { x f32; y f32 null } null\nside enum u8 { BUY = 66, SELL = 83 } null\n\
                  tags string[]\nlegs record { to string; km u16[] }[] null\ngrid u8[2][]\n\
                  msg union { add record { price decimal(8, scale 2) }; del u32 } null";
    let format = Format::parse_schema(schema).unwrap();
    let json = crossdock_format::json::JsonEncoder::new(&format);
    let show = |text: &str| {
        let (payload, errors) = decode(&format, text.as_bytes(), 10, &EncodingOptions::default());
        let mut lines = Vec::new();
        for record in any_records(&format, &payload) {
            json.record(&record, &mut lines);
        }
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        String::from_utf8(lines).unwrap() + &errors.join("\n")
    };
    let full = "<rs><r id='1'><pos x='1.5'><y>2</y></pos><side>SELL</side><tags>a</tags><tags/>
        <legs to='JFK'><km>1</km><km> 2 </km></legs><legs><to>LGA</to></legs>
        <grid><item>1</item><item>2</item></grid><grid><item>3</item><item>4</item></grid>
        <msg><add><price>1.5</price></add></msg></r></rs>";
    assert_eq!(
        show(full),
        "{\"id\":1,\"pos\":{\"x\":1.5,\"y\":2.0},\"side\":\"SELL\",\"tags\":[\"a\",\"\"],\"legs\":[{\"to\":\"JFK\",\
         \"km\":[1,2]},{\"to\":\"LGA\",\"km\":[]}],\"grid\":[[1,2],[3,4]],\"msg\":{\"add\":{\"price\":1.50}}}\n"
    );
    assert_eq!(
        show(
            "<rs><r id='1'><side>66</side><msg del='7'/></r><r xmlns:x='i' id='2'><legs x:nil='false'/><pos x='0'/></r></rs>"
        ),
        "{\"id\":1,\"pos\":null,\"side\":\"BUY\",\"tags\":[],\"legs\":null,\"grid\":[],\"msg\":{\"del\":7}}\n\
         {\"id\":2,\"pos\":{\"x\":0.0,\"y\":null},\"side\":null,\"tags\":[],\"legs\":[],\"grid\":[],\"msg\":null}\n"
    );
    for (inside, said) in [
        ("<pos><y>1</y></pos>", "field `pos.x`: it is missing"),
        ("<pos x='1'><z/></pos>", "field `pos.z`: the format has no such field; it has: x, y"),
        ("<pos x='?'/>", "field `pos.x`: found `?`, expected f32"),
        ("<pos x='1'/><pos x='1'/>", "field `pos`: it is there twice"),
        ("<side>HOLD</side>", "field `side`: found `HOLD`, expected"),
        ("<tags>a</tags><side>BUY</side><tags>b</tags>", "field `tags`: it is there twice"),
        ("<tags><b/></tags>", "field `tags[0]`: found an element `b`, expected string"),
        (
            "<tags xmlns:x='i' x:nil='true'>a</tags>",
            "field `tags`: found an element with `xsi:nil` that is not empty, expected elements",
        ),
        ("<legs to='a'><km>1</km><km>70000</km></legs>", "field `legs[0].km[1]`: found `70000`, expected u16"),
        ("<legs><km>1</km></legs>", "it is missing"),
        ("<grid><item>1</item></grid>", "grid"),
        ("<msg><del>1</del><add><price>1</price></add></msg>", "found 2 variants of its union, expected 1"),
        ("<msg><add><price>1.505</price></add></msg>", "field `msg.add.price`: found `1.505`"),
        ("<msg>text</msg>", "field `msg`: found the text `text`, expected elements"),
        ("<grid><item>1</item><item>x</item></grid>", "field `grid[0][1]`: found `x`, expected u8 (0 to 255)"),
        ("<grid a='1'/>", "field `grid[0]`: found an attribute `a`, expected elements"),
        ("<grid><item>1</item><b/></grid>", "field `grid[0]`: found an element `b`, expected elements"),
    ] {
        let found = show(&format!("<rs><r id='1'>{inside}</r><r id='2'/></rs>"));
        assert!(
            found.contains(said) && found.contains("{\"id\":2,") && !found.contains("{\"id\":1,"),
            "{inside}: {found}"
        );
    }
}

#[test]
fn nulls_defaults_and_what_has_no_place_are_read_as_in_json() {
    let schema = "id u32 default 5\npos record { x f32 null; l u8[] } null\nname string null\ntags string[]\n\
                  cube u8[][][]\nnone record { value string null }[]\nmsg union { del u32; text string } null";
    let format = Format::parse_schema(schema).unwrap();
    let json = crossdock_format::json::JsonEncoder::new(&format);
    let show = |inside: &str, ignore_unknown: bool| {
        let options = EncodingOptions { ignore_unknown, ..EncodingOptions::default() };
        let text = format!("<rs xmlns:x='i'><r>{inside}</r><r/></rs>");
        let (payload, errors) = decode(&format, text.as_bytes(), 10, &options);
        let mut lines = Vec::new();
        for record in any_records(&format, &payload) {
            json.record(&record, &mut lines);
        }
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        String::from_utf8(lines).unwrap() + &errors.join("\n")
    };
    let blank = r#"{"id":5,"pos":null,"name":null,"tags":[],"cube":[],"none":[],"msg":null}"#;
    for inside in [
        "",
        "<id> </id><msg><del/></msg>",
        "<pos x:nil='true'/>",
        "<name x:nil='1'>\n</name>",
        "<pos x:nil='1'> </pos>",
        "<none x:nil='0'> </none>",
    ] {
        assert_eq!(show(inside, false), format!("{blank}\n{blank}\n"), "{inside}");
    }
    let pos = |pos: &str| blank.replace("\"pos\":null", &format!("\"pos\":{pos}"));
    for inside in ["<pos/>", "<pos x=''/>", "<pos>\n<x> </x></pos>"] {
        assert!(show(inside, false).starts_with(&pos("{\"x\":null,\"l\":[]}")), "{inside}");
    }
    let none = "<none><value>a</value></none><none x:nil='true'/> <none/><none value='b'/>";
    assert!(show(none, false).contains(r#"[{"value":"a"},{"value":null},{"value":null},{"value":"b"}]"#), "{none}");
    let stray = "t<name lang='e'>a<b>-<c/></b>&amp;<b/>c</name><tags>a</tags>t<tags>b<b/></tags>\
                 <cube a='1'><b/><item>t<item>1</item><b><item>9</item></b><item>2</item></item><item/></cube>";
    let read = show(stray, true);
    let passed_over = show("<pos x:nil='1' q='1'/><tags x:nil='0' q='1'/>", true);
    assert!(passed_over.starts_with(&format!("{blank}\n")), "{passed_over}");
    assert!(read.contains(r#""name":"a&c","tags":["a","b"],"cube":[[[1,2],[]]]"#), "{read}");
    for (inside, said) in [
        ("<tags>a</tags>t<tags>b</tags>", "found the text `t`, expected elements"),
        ("<cube><item>t</item></cube>", "field `cube[0][0]`: found the text `t`, expected elements"),
        ("<cube><item><item/></item></cube>", "field `cube[0][0][0]`: found ``, expected u8 (0 to 255)"),
        ("<tags>a</tags><tags x:nil='true'/>", "field `tags[1]`: found null, expected string"),
        ("<pos><l>1</l><l>x</l></pos>", "field `pos.l[1]`: found `x`, expected u8"),
        ("<name x:nil='1'>a</name>", "field `name`: found an element with `xsi:nil` that is not empty"),
        ("<pos x:nil='1' x='1'/>", "field `pos`: found an element with `xsi:nil` that is not empty"),
        ("<none x:nil='1'><value>a</value></none>", "field `none`: found an element with `xsi:nil` that is not empty"),
        ("<cube><item x:nil='1'/></cube>", "field `cube[0][0]`: found null"),
        ("<r tags='a'/>", "field `r`: the format has no such field"),
        ("<msg><del>1</del><text/></msg>", "found 2 variants of its union, expected 1"),
    ] {
        let found = show(inside, false);
        assert!(found.starts_with(&format!("{blank}\n")) && found.contains(said), "{inside}: {found}");
    }
}
