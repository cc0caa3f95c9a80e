//! The Debian packages that a binary needs, from the symbol versions that the linker wrote into it.

use std::collections::BTreeMap;
use std::path::Path;

use super::tool::{text, tool};

/// A shared library's package, and how its symbol versions begin.
struct Library {
    file: &'static str,
    package: &'static str,
    versions: &'static str,
}

/// The libraries that a Rust binary is linked with. The loader comes with the C library.
const LIBRARIES: [Library; 6] = [
    Library { file: "libc.so.6", package: "libc6", versions: "GLIBC_" },
    Library { file: "libm.so.6", package: "libc6", versions: "GLIBC_" },
    Library { file: "libdl.so.2", package: "libc6", versions: "GLIBC_" },
    Library { file: "libpthread.so.0", package: "libc6", versions: "GLIBC_" },
    Library { file: "ld-linux", package: "libc6", versions: "GLIBC_" },
    Library { file: "libgcc_s.so.1", package: "libgcc-s1", versions: "GCC_" },
];

/// The symbol version of a C library's feature that has a name in place of a number, and the library's version with it.
const NAMED: [(&str, &str); 1] = [("GLIBC_ABI_DT_RELR", "2.36")];

/// The field `Depends` of a package with this binary.
pub(crate) fn depends(binary: &Path) -> Result<String, String> {
    let dynamic = text(tool("readelf").args(["--wide", "--dynamic"]).arg(binary))?;
    let versions = text(tool("readelf").args(["--wide", "--version-info"]).arg(binary))?;
    from_readelf(&dynamic, &versions).map_err(|why| format!("dist: {}: {why}", binary.display()))
}

/// The highest version of each package that one of its libraries is asked for.
fn from_readelf(dynamic: &str, versions: &str) -> Result<String, String> {
    let mut needs: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let file = line.split(['[', ']']).nth(1).unwrap_or_default();
        needs.entry(library(file)?.package).or_default();
    }
    let mut current = None;
    for line in versions.lines() {
        if let Some(file) = field(line, "File:") {
            current = Some(library(file)?);
        } else if line.contains("Flags:")
            && let (Some(library), Some(name)) = (current, field(line, "Name:"))
        {
            let version = version(library, name)?;
            let highest = needs.entry(library.package).or_default();
            if version > *highest {
                *highest = version;
            }
        } else if line.contains("section '.gnu.version_d'") {
            // The versions that the binary itself defines.
            current = None;
        }
    }
    if needs.is_empty() {
        return Err("it needs no shared library; say in needs.rs what a static binary depends on".into());
    }
    let one = |(package, version): (&&str, &Vec<u32>)| match version.as_slice() {
        [] => (*package).to_owned(),
        parts => format!("{package} (>= {})", parts.iter().map(u32::to_string).collect::<Vec<_>>().join(".")),
    };
    Ok(needs.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn library(file: &str) -> Result<&'static Library, String> {
    LIBRARIES
        .iter()
        .find(|library| file.starts_with(library.file))
        .ok_or_else(|| format!("it needs {file}, which needs.rs knows no Debian package of; add it to the table there"))
}

/// The numbers of a symbol version: `GLIBC_2.34` is 2 and 34.
fn version(library: &Library, name: &str) -> Result<Vec<u32>, String> {
    let named = NAMED.iter().find(|(known, _)| *known == name).map(|(_, version)| *version);
    let numbers = named.or_else(|| name.strip_prefix(library.versions));
    let parts = numbers.map(|numbers| numbers.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>());
    match parts {
        Some(Ok(parts)) => Ok(parts),
        _ => Err(format!("it needs the symbol version {name} of {}, which is not a number", library.file)),
    }
}

/// The word after a name in a line of `readelf`.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_once(name)?.1.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DYNAMIC: &str = "
Dynamic section at offset 0x8ddd8 contains 31 entries:
  Tag        Type                         Name/Value
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [ld-linux-x86-64.so.2]
 0x000000000000000c (INIT)               0x9000
";

    fn versions(of_libc: &[&str]) -> String {
        let mut text = "
Version needs section '.gnu.version_r' contains 2 entries:
 Addr: 0x0000000000001508  Offset: 0x001508  Link: 7 (.dynstr)
  000000: Version: 1  File: libgcc_s.so.1  Cnt: 2
  0x0010:   Name: GCC_3.3  Flags: none  Version: 11
  0x0020:   Name: GCC_4.2.0  Flags: none  Version: 10
  0x0030: Version: 1  File: libc.so.6  Cnt: 3
"
        .to_owned();
        for name in of_libc {
            text += &format!("  0x0040:   Name: {name}  Flags: none  Version: 9\n");
        }
        text
    }

    #[test]
    fn the_highest_version_counts_as_a_number() {
        let depends = from_readelf(DYNAMIC, &versions(&["GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.2.5"])).unwrap();
        assert_eq!(depends, "libc6 (>= 2.34), libgcc-s1 (>= 4.2.0)");
        let depends = from_readelf(DYNAMIC, &versions(&["GLIBC_ABI_DT_RELR", "GLIBC_2.34"])).unwrap();
        assert_eq!(depends, "libc6 (>= 2.36), libgcc-s1 (>= 4.2.0)");
    }

    #[test]
    fn a_library_without_versions_is_needed_all_the_same() {
        assert_eq!(from_readelf(DYNAMIC, "").unwrap(), "libc6, libgcc-s1");
    }

    #[test]
    fn versions_that_the_binary_defines_are_not_needed() {
        let text = versions(&["GLIBC_2.2.5"])
            + "Version definition section '.gnu.version_d' contains 1 entries:\n  000000: Rev: 1  Flags: BASE  Name: me\n";
        assert_eq!(from_readelf(DYNAMIC, &text).unwrap(), "libc6 (>= 2.2.5), libgcc-s1 (>= 4.2.0)");
    }

    #[test]
    fn unknown_needs_are_errors() {
        let why = from_readelf(&DYNAMIC.replace("libc.so.6", "libssl.so.3"), "").unwrap_err();
        assert!(why.contains("it needs libssl.so.3"), "{why}");
        let why = from_readelf(DYNAMIC, &versions(&["GLIBC_PRIVATE"])).unwrap_err();
        assert!(why.contains("GLIBC_PRIVATE of libc.so.6"), "{why}");
        assert!(from_readelf("", "").is_err());
    }

    #[test]
    fn a_real_program_says_what_it_needs() {
        let depends = depends(&std::env::current_exe().unwrap()).unwrap();
        assert!(depends.starts_with("libc6 (>= 2."), "{depends}");
    }
}
