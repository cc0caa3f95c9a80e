//! Which file goes where in the packages: one table, read by everything that makes or checks a package.

use std::path::{Path, PathBuf};

use walkdir::WalkDir;

/// The start of a row's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Root {
    /// The repository.
    Repository,
    /// The folder that the build made.
    Made,
    /// The row is a symbolic link, and its path what the link says.
    Link,
}

/// A kind of package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Package {
    /// The tarball, whose top folder is laid out as `/` is, with how to install it in `INSTALL`.
    Tarball,
    /// The Debian package.
    Debian,
}

/// A row of the table: where a file comes from, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    root: Root,
    from: &'static str,
    /// For a folder: the ending of its files that are taken, at any depth.
    ending: Option<&'static str>,
    tarball: Option<&'static str>,
    debian: Option<&'static str>,
    mode: u32,
    compressed: bool,
}

/// One file of a package.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Item {
    /// Where it lies in the package, relative.
    pub(crate) to: String,
    /// The file that it is made from, or what the link says.
    pub(crate) from: PathBuf,
    /// Whether it is a symbolic link.
    pub(crate) link: bool,
    /// Its permissions.
    pub(crate) mode: u32,
    /// Whether it is compressed within the package.
    pub(crate) compressed: bool,
}

/// Where the packaged configuration lies. An upgrade keeps the user's changes to it.
pub(crate) const CONFIGURATION: &str = "etc/crossdock/crossdock.toml";

/// Where the units lie.
pub(crate) const UNITS: &str = "usr/lib/systemd/system/";

/// The table. A destination that ends in `/` is a folder, where a file keeps its name.
pub(crate) const PRODUCT: [Row; 20] = [
    file(Root::Made, "bin/crossdock").to("usr/bin/crossdock", "usr/bin/crossdock").executable(),
    folder(Root::Made, "man", ".1").to("usr/share/man/man1/", "usr/share/man/man1/").compressed(),
    folder(Root::Made, "man", ".5").to("usr/share/man/man5/", "usr/share/man/man5/").compressed(),
    file(Root::Made, "completions/bash")
        .to("usr/share/bash-completion/completions/crossdock", "usr/share/bash-completion/completions/crossdock"),
    file(Root::Made, "completions/zsh")
        .to("usr/share/zsh/site-functions/_crossdock", "usr/share/zsh/vendor-completions/_crossdock"),
    file(Root::Made, "completions/fish")
        .to("usr/share/fish/vendor_completions.d/crossdock.fish", "usr/share/fish/vendor_completions.d/crossdock.fish"),
    file(Root::Repository, "packaging/crossdock.toml").to(CONFIGURATION, CONFIGURATION),
    folder(Root::Repository, "packaging/systemd", ".service").to(UNITS, UNITS),
    folder(Root::Repository, "packaging/systemd", ".socket").to(UNITS, UNITS),
    folder(Root::Repository, "packaging/sysctl", ".conf").to("usr/lib/sysctl.d/", "usr/lib/sysctl.d/"),
    folder(Root::Repository, "packaging/sysusers.d", ".conf").to("usr/lib/sysusers.d/", "usr/lib/sysusers.d/"),
    file(Root::Repository, "README.md").to("usr/share/doc/crossdock/", "usr/share/doc/crossdock/").compressed(),
    folder(Root::Repository, "docs", ".md")
        .to("usr/share/doc/crossdock/docs/", "usr/share/doc/crossdock/docs/")
        .compressed(),
    file(Root::Repository, "crates/crossdock/crossdock.example.toml")
        .to("usr/share/doc/crossdock/", "usr/share/doc/crossdock/examples/"),
    file(Root::Made, "LIBRARIES").to("usr/share/doc/crossdock/", "usr/share/doc/crossdock/").compressed(),
    file(Root::Repository, "packaging/INSTALL").to_tarball("INSTALL"),
    // Debian's copyright file stands for these.
    file(Root::Repository, "LICENSE-APACHE").to_tarball("usr/share/doc/crossdock/"),
    file(Root::Repository, "LICENSE-MIT").to_tarball("usr/share/doc/crossdock/"),
    file(Root::Repository, "packaging/debian/copyright").to_debian("usr/share/doc/crossdock/"),
    file(Root::Made, "changelog.Debian").to_debian("usr/share/doc/crossdock/").compressed(),
];

/// The table of the packages with the debug information.
pub(crate) const DEBUG: [Row; 2] = [
    folder(Root::Made, "debug", ".debug").to("usr/lib/debug/", "usr/lib/debug/"),
    // Debian's way to say that the documents of the program hold for these too.
    file(Root::Link, "crossdock").to_debian("usr/share/doc/crossdock-dbgsym"),
];

const fn file(root: Root, from: &'static str) -> Row {
    Row { root, from, ending: None, tarball: None, debian: None, mode: 0o644, compressed: false }
}

const fn folder(root: Root, from: &'static str, ending: &'static str) -> Row {
    Row { ending: Some(ending), ..file(root, from) }
}

impl Row {
    const fn to(self, tarball: &'static str, debian: &'static str) -> Row {
        Row { tarball: Some(tarball), debian: Some(debian), ..self }
    }

    const fn to_tarball(self, tarball: &'static str) -> Row {
        Row { tarball: Some(tarball), ..self }
    }

    const fn to_debian(self, debian: &'static str) -> Row {
        Row { debian: Some(debian), ..self }
    }

    const fn executable(self) -> Row {
        Row { mode: 0o755, ..self }
    }

    /// Compressed in the Debian package, as its policy wants pages and long documents.
    const fn compressed(self) -> Row {
        Row { compressed: true, ..self }
    }

    /// Where the row's files go in one kind of package.
    pub(crate) fn place_in(&self, package: Package) -> Option<&'static str> {
        match package {
            Package::Tarball => self.tarball,
            Package::Debian => self.debian,
        }
    }

    /// The row's files, by their paths below its folder; a row without a file is an error.
    fn files(&self, roots: &Roots<'_>) -> Result<Vec<(String, PathBuf)>, String> {
        let root = match self.root {
            Root::Repository => roots.repository,
            Root::Made => roots.made,
            Root::Link => return Ok(vec![(self.from.to_owned(), self.from.into())]),
        };
        let path = root.join(self.from);
        let Some(ending) = self.ending else {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return if path.is_file() {
                Ok(vec![(name, path)])
            } else {
                Err(format!("dist: {} is not there; the packages need it", path.display()))
            };
        };
        let mut files = Vec::new();
        for entry in WalkDir::new(&path).sort_by_file_name() {
            let entry = entry.map_err(|why| format!("dist: {why}; the packages need {}", path.display()))?;
            if entry.file_type().is_file() && entry.file_name().to_string_lossy().ends_with(ending) {
                let below = entry.path().strip_prefix(&path).unwrap_or(entry.path());
                files.push((below.to_string_lossy().into_owned(), entry.path().to_owned()));
            }
        }
        if files.is_empty() {
            return Err(format!("dist: {} has no file that ends in `{ending}`", path.display()));
        }
        Ok(files)
    }
}

/// Where the table's paths start.
pub(crate) struct Roots<'a> {
    /// The repository.
    pub(crate) repository: &'a Path,
    /// The build's results.
    pub(crate) made: &'a Path,
}

/// The files of one package, by their places in it.
pub(crate) fn items(table: &[Row], package: Package, roots: &Roots<'_>) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    for row in table {
        let Some(place) = row.place_in(package) else {
            continue;
        };
        for (name, from) in row.files(roots)? {
            let compressed = row.compressed && package == Package::Debian;
            let mut to = if place.ends_with('/') { format!("{place}{name}") } else { place.to_owned() };
            if compressed {
                to += ".gz";
            }
            items.push(Item { to, from, link: row.root == Root::Link, mode: row.mode, compressed });
        }
    }
    items.sort();
    match items.windows(2).find(|pair| pair[0].to == pair[1].to) {
        Some(pair) => Err(format!("dist: two files would be {}; correct the table in layout.rs", pair[0].to)),
        None => Ok(items),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fake;
    use super::*;

    #[test]
    fn both_packages_hold_what_a_user_needs() {
        let fake = Fake::new("layout");
        let to = |package| {
            let items = items(&PRODUCT, package, &fake.roots()).unwrap();
            items.into_iter().map(|item| format!("{:o} {}", item.mode, item.to)).collect::<Vec<_>>()
        };
        assert_eq!(
            to(Package::Tarball),
            [
                "644 INSTALL",
                "644 etc/crossdock/crossdock.toml",
                "755 usr/bin/crossdock",
                "644 usr/lib/sysctl.d/60-crossdock.conf",
                "644 usr/lib/systemd/system/crossdock.service",
                "644 usr/lib/systemd/system/crossdock.socket",
                "644 usr/lib/sysusers.d/crossdock.conf",
                "644 usr/share/bash-completion/completions/crossdock",
                "644 usr/share/doc/crossdock/LIBRARIES",
                "644 usr/share/doc/crossdock/LICENSE-APACHE",
                "644 usr/share/doc/crossdock/LICENSE-MIT",
                "644 usr/share/doc/crossdock/README.md",
                "644 usr/share/doc/crossdock/crossdock.example.toml",
                "644 usr/share/doc/crossdock/docs/sql.md",
                "644 usr/share/fish/vendor_completions.d/crossdock.fish",
                "644 usr/share/man/man1/crossdock-serve.1",
                "644 usr/share/man/man1/crossdock.1",
                "644 usr/share/man/man5/crossdock.toml.5",
                "644 usr/share/zsh/site-functions/_crossdock",
            ]
        );
        assert_eq!(
            to(Package::Debian),
            [
                "644 etc/crossdock/crossdock.toml",
                "755 usr/bin/crossdock",
                "644 usr/lib/sysctl.d/60-crossdock.conf",
                "644 usr/lib/systemd/system/crossdock.service",
                "644 usr/lib/systemd/system/crossdock.socket",
                "644 usr/lib/sysusers.d/crossdock.conf",
                "644 usr/share/bash-completion/completions/crossdock",
                "644 usr/share/doc/crossdock/LIBRARIES.gz",
                "644 usr/share/doc/crossdock/README.md.gz",
                "644 usr/share/doc/crossdock/changelog.Debian.gz",
                "644 usr/share/doc/crossdock/copyright",
                "644 usr/share/doc/crossdock/docs/sql.md.gz",
                "644 usr/share/doc/crossdock/examples/crossdock.example.toml",
                "644 usr/share/fish/vendor_completions.d/crossdock.fish",
                "644 usr/share/man/man1/crossdock-serve.1.gz",
                "644 usr/share/man/man1/crossdock.1.gz",
                "644 usr/share/man/man5/crossdock.toml.5.gz",
                "644 usr/share/zsh/vendor-completions/_crossdock",
            ]
        );
    }

    #[test]
    fn each_package_has_the_files_that_its_units_and_its_instructions_name() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let fake = Fake::new("layout-units");
        let roots = Roots { repository: &repository, made: &fake.made.folder };
        let read = |name: &str| std::fs::read_to_string(repository.join("packaging").join(name)).unwrap();
        let service = read("systemd/crossdock.service");
        let start = service.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let install = read("INSTALL");
        let below = ["/usr/lib/", "/etc/crossdock/"];
        let named = install.split_whitespace().map(|word| word.trim_end_matches([';', '.', ',']));
        let named: Vec<_> = named.filter(|word| below.iter().any(|folder| word.starts_with(folder))).collect();
        assert!(named.len() > 3, "{named:?}");
        for package in [Package::Tarball, Package::Debian] {
            let items = items(&PRODUCT, package, &roots).unwrap();
            let paths = start.split_whitespace().filter(|word| word.starts_with('/')).chain(named.iter().copied());
            for path in paths.filter(|path| !path.ends_with('/')) {
                assert!(items.iter().any(|item| path[1..] == item.to), "{package:?} has no {path}");
            }
        }
        for unit in install.split_whitespace().filter(|word| word.ends_with(".socket") || word.ends_with(".service")) {
            assert!(repository.join("packaging/systemd").join(unit).exists(), "{unit}");
        }
    }

    #[test]
    fn the_repository_has_its_part_of_the_packages() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let roots = Roots { repository: &repository, made: Path::new("/nowhere") };
        for row in PRODUCT.iter().chain(&DEBUG).filter(|row| row.root == Root::Repository) {
            assert_eq!(row.files(&roots).map(|files| files.is_empty()), Ok(false));
        }
    }

    #[test]
    fn a_package_without_one_of_its_files_is_not_made() {
        let fake = Fake::new("layout-missing");
        std::fs::remove_file(fake.repository().join("packaging/systemd/crossdock.socket")).unwrap();
        let why = items(&PRODUCT, Package::Debian, &fake.roots()).unwrap_err();
        assert!(why.ends_with("packaging/systemd has no file that ends in `.socket`"), "{why}");
        std::fs::remove_file(fake.repository().join("LICENSE-MIT")).unwrap();
        assert!(items(&PRODUCT[15..18], Package::Debian, &fake.roots()).is_ok());
        let why = items(&PRODUCT[15..18], Package::Tarball, &fake.roots()).unwrap_err();
        assert!(why.ends_with("LICENSE-MIT is not there; the packages need it"), "{why}");
    }

    #[test]
    fn two_files_do_not_share_a_place() {
        let fake = Fake::new("layout-twice");
        let twice = [PRODUCT[0], PRODUCT[0]];
        let why = items(&twice, Package::Debian, &fake.roots()).unwrap_err();
        assert!(why.starts_with("dist: two files would be usr/bin/crossdock"), "{why}");
    }
}
