#!/bin/sh
# Makes the certificates of these tests anew: `sh make.sh`, in this directory. Only tests use their keys.
#   ca.pem          an authority, which has signed the next three
#   daemon.pem      for localhost, 127.0.0.1 and ::1, until 2120
#   expired.pem     the same, until 2021
#   elsewhere.pem   for daemon.example
#   selfsigned.pem  signed by itself, for localhost
#   stranger.pem    an authority that has signed nothing here
#   daemon.key      the key of all but the authorities
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
curve='-pkeyopt ec_paramgen_curve:P-256'
authority() {
    openssl req -x509 -newkey ec $curve -nodes -keyout "$work/$1.key" -out "$1.pem" -days 36500 -subj "/CN=$2"
}
authority ca 'Authority of tests'
authority stranger 'Another authority'
openssl genpkey -algorithm EC $curve -out daemon.key
cat > "$work/ca.cnf" <<END
[ca]
default_ca = it
[it]
database = $work/index
serial = $work/serial
new_certs_dir = $work
policy = any
default_md = sha256
unique_subject = no
[any]
commonName = supplied
END
: > "$work/index"
echo 01 > "$work/serial"
# NAME, its names, its end, then the options that say who signs it.
signed() {
    name=$1 names=$2 end=$3
    shift 3
    printf '[it]\nbasicConstraints = critical, CA:FALSE\nsubjectAltName = %s\n' "$names" > "$work/$name.ext"
    openssl req -new -key daemon.key -subj "/CN=$name" -out "$work/$name.csr"
    openssl ca -batch -notext -config "$work/ca.cnf" "$@" -in "$work/$name.csr" -extfile "$work/$name.ext" \
        -extensions it -startdate 20200101000000Z -enddate "$end" -out "$name.pem"
}
here='DNS:localhost, IP:127.0.0.1, IP:::1'
signed daemon "$here" 21200101000000Z -cert ca.pem -keyfile "$work/ca.key"
signed expired "$here" 20210101000000Z -cert ca.pem -keyfile "$work/ca.key"
signed elsewhere 'DNS:daemon.example' 21200101000000Z -cert ca.pem -keyfile "$work/ca.key"
signed selfsigned DNS:localhost 21200101000000Z -selfsign -keyfile daemon.key
