//! Holds the Dockerfile against the repository and the packages, since no test can build an image.

use std::path::{Path, PathBuf};

use super::build::PROFILE;
use super::layout::CONFIGURATION;

/// The program in the image, as in the packages.
const PROGRAM: &str = "/usr/bin/crossdock";

/// An instruction: its name, its options, and what follows them.
#[derive(PartialEq, Eq, Debug)]
struct Instruction {
    name: String,
    options: Vec<String>,
    rest: String,
}

impl Instruction {
    fn words(&self) -> Vec<&str> {
        self.rest.split_whitespace().collect()
    }

    /// The list of an instruction in exec form, which needs no shell.
    fn list(&self) -> Vec<String> {
        let list = self.rest.strip_prefix("CMD ").unwrap_or(&self.rest);
        serde_json::from_str(list).unwrap_or_else(|why| panic!("{} {} needs a shell: {why}", self.name, self.rest))
    }
}

/// The instructions of each stage, comments left out and continued lines joined.
fn stages(text: &str) -> Vec<Vec<Instruction>> {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let mut stages: Vec<Vec<Instruction>> = Vec::new();
    for line in joined.lines().filter(|line| !line.trim().is_empty()) {
        let (name, rest) = line.trim().split_once(' ').unwrap_or((line, ""));
        let mut rest = rest.trim_start();
        let mut options = Vec::new();
        while let Some((option, more)) = rest.strip_prefix("--").and_then(|rest| rest.split_once(' ')) {
            options.push(option.to_owned());
            rest = more.trim_start();
        }
        let instruction = Instruction { name: name.to_uppercase(), options, rest: rest.to_owned() };
        if instruction.name == "FROM" {
            stages.push(Vec::new());
        }
        if let Some(stage) = stages.last_mut() {
            stage.push(instruction);
        }
    }
    stages
}

/// Whether a path is one that `.dockerignore` names, or below one.
fn is_ignored(ignored: &str, path: &str) -> bool {
    let lines = ignored.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.inspect(|line| assert!(!line.contains(['*', '?', '!', '[']), ".dockerignore: `{line}` is no plain path")).any(
        |line| {
            let line = line.trim_matches('/');
            path == line || path.strip_prefix(line).is_some_and(|rest| rest.starts_with('/'))
        },
    )
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(repository().join(name)).unwrap_or_else(|why| panic!("{name}: {why}"))
}

/// The sources of the stage's `COPY`s out of the repository.
fn copied(stage: &[Instruction]) -> Vec<&str> {
    let copies = stage.iter().filter(|one| one.name == "COPY");
    let copies = copies.filter(|one| !one.options.iter().any(|option| option.starts_with("from=")));
    copies.flat_map(|one| one.words().split_last().map(|(_, sources)| sources.to_vec()).unwrap_or_default()).collect()
}

fn one<'a>(stage: &'a [Instruction], name: &str) -> &'a Instruction {
    let mut found = stage.iter().filter(|one| one.name == name);
    let first = found.next().unwrap_or_else(|| panic!("the image has no {name}"));
    assert!(found.next().is_none(), "the image has two {name}");
    first
}

#[test]
fn sources_of_the_image_are_there() {
    let ignored = read(".dockerignore");
    for stage in stages(&read("Dockerfile")) {
        for source in copied(&stage) {
            assert!(repository().join(source).exists(), "COPY {source}: it is not there");
            assert!(!is_ignored(&ignored, source), "COPY {source}: .dockerignore keeps it out");
        }
    }
}

#[test]
fn cargo_finds_every_package_of_the_workspace_in_the_build_stage() {
    let stages = stages(&read("Dockerfile"));
    let copied = copied(&stages[0]);
    let place = crate::place::CargoWorkspace::find().unwrap();
    for package in place.metadata["packages"].as_array().unwrap() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap()).strip_prefix(&place.root).unwrap();
        assert!(copied.iter().any(|folder| manifest.starts_with(folder)), "{} is not copied", manifest.display());
    }
    let build = &one(&stages[0], "RUN").rest;
    assert!(build.contains(&format!("cargo build --locked --profile {PROFILE} --package crossdock ")), "{build}");
    assert!(build.contains(&format!(" target/{PROFILE}/crossdock /image{PROGRAM} ")), "{build}");
}

/// The files outside of its own package that a Rust file takes into the binary.
fn included(source: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(source).unwrap();
    let calls = ["include_str!(\"", "include_bytes!(\""];
    let paths = calls.iter().flat_map(|call| text.split(call).skip(1)).filter_map(|rest| rest.split('"').next());
    paths.filter(|path| path.starts_with("..")).map(|path| source.with_file_name(path)).collect()
}

#[test]
fn the_compiler_finds_every_included_file_in_the_build_stage() {
    let stages = stages(&read("Dockerfile"));
    let copied = copied(&stages[0]);
    let root = repository().canonicalize().unwrap();
    let mut found = 0;
    for source in walkdir::WalkDir::new(root.join("crates")).into_iter().map(Result::unwrap) {
        let path = source.path();
        if path.extension().is_some_and(|ending| ending == "rs")
            && path.components().any(|part| part.as_os_str() == "src")
        {
            for file in included(path) {
                let file = file.canonicalize().unwrap_or_else(|why| panic!("{}: {why}", file.display()));
                let below = file.strip_prefix(&root).unwrap();
                assert!(copied.iter().any(|folder| below.starts_with(folder)), "{} is not copied", below.display());
                found += 1;
            }
        }
    }
    assert!(found > 0, "no file is included by a path that begins with `..`");
}

#[test]
fn the_image_runs_without_a_shell_and_without_root() {
    let stages = stages(&read("Dockerfile"));
    let image = stages.last().unwrap();
    assert!(!image.iter().any(|one| one.name == "RUN"), "there is no shell to RUN anything");
    let user = &one(image, "USER").rest;
    let ids: Vec<u32> = user.split(':').map(|id| id.parse().unwrap()).collect();
    assert!(ids.len() == 2 && !ids.contains(&0), "USER {user}");
    assert_eq!(one(image, "ENTRYPOINT").list(), [PROGRAM]);
    assert_eq!(one(image, "HEALTHCHECK").list()[0], PROGRAM);
    for folder in one(image, "VOLUME").list() {
        let owned = image
            .iter()
            .any(|one| one.words().last() == Some(&&*folder) && one.options.contains(&format!("chown={user}")));
        assert!(owned, "{folder} does not belong to the daemon's user");
    }
}

#[test]
fn the_image_listens_where_its_configuration_says() {
    let stages = stages(&read("Dockerfile"));
    let image = stages.last().unwrap();
    let configuration = format!("/{CONFIGURATION}");
    assert_eq!(one(image, "CMD").list(), ["serve", "--config", &configuration]);
    let copy = image.iter().find(|one| one.name == "COPY" && one.words().last() == Some(&&*configuration));
    let text = read(copy.expect("the image has no configuration").words()[0]);
    let port = one(image, "EXPOSE").rest.trim_end_matches("/udp");
    assert!(text.contains(&format!("\nlisten = \"0.0.0.0:{port}\"\n")), "{text}");
    let state = &one(image, "VOLUME").list()[0];
    assert!(text.contains(&format!("\nstate_dir = \"{state}\"\n")), "{text}");
}

#[test]
fn stages_and_ignored_paths_are_read_as_docker_reads_them() {
    let stages = stages("# a\nARG X\nFROM a AS b\nCOPY --from=b --chown=1:1 /a \\\n  # c\n  /b\nFROM c\nUSER 1\n");
    let instruction = |name: &str, options: &[&str], rest: &str| Instruction {
        name: name.into(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        rest: rest.into(),
    };
    assert_eq!(stages[0][1].words(), ["/a", "/b"]);
    assert_eq!(stages[0][1].options, ["from=b", "chown=1:1"]);
    assert_eq!(stages[1], [instruction("FROM", &[], "c"), instruction("USER", &[], "1")]);
    assert!(is_ignored("# x\ndata\n", "data") && is_ignored("data\n", "data/a.csv"));
    assert!(!is_ignored("data\n", "database") && !is_ignored("data\n", "crates/data"));
}
