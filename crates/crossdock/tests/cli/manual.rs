//! `crossdock man`: the pages, the same each time, which the program that shows them has nothing to say against.

use std::process::Command;

use crate::place::{Sandbox, skip};

#[test]
fn every_command_has_a_page_that_is_the_same_each_time() {
    let place = Sandbox::new();
    for directory in ["one", "two"] {
        place.run(["man", "--directory", directory]).with_code(0);
    }
    let mut names: Vec<String> = std::fs::read_dir(place.path("one"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for name in ["crossdock.1", "crossdock-serve.1", "crossdock-handler-deploy.1", "crossdock.toml.5"] {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }
    for name in &names {
        let read = |directory: &str| std::fs::read_to_string(place.path(directory).join(name)).unwrap();
        assert_eq!(read("one"), read("two"), "{name}");
        assert!(read("one").lines().any(|line| line.starts_with(".TH ")), "{name}");
    }
    let printed = place.run(["man"]).with_code(0).stdout;
    assert_eq!(printed, std::fs::read_to_string(place.path("one").join("crossdock.1")).unwrap());
    place.write("file", "");
    place.run(["man", "--directory", "file/below"]).with_code(1).saying(&["file/below", "--directory"]);
}

#[test]
fn groff_has_nothing_to_say_against_the_pages() {
    let place = Sandbox::new();
    place.run(["man", "--directory", "pages"]).with_code(0);
    for entry in std::fs::read_dir(place.path("pages")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(shown) = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-P-cbou"]).arg(&path).output() else {
            return skip("pages are looked at by groff, which is not there");
        };
        let (text, said) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
        assert!(shown.status.success() && said.is_empty(), "{}: {said}", path.display());
        assert!(text.contains("NAME") && text.contains("SEE ALSO"), "{}", path.display());
    }
}
