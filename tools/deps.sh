#!/bin/sh
# Installs the Debian packages that hearth needs and that are missing.
set -eu
packages="gcc make binutils pkg-config libc6-dev libjansson-dev libpcre2-dev libutf8proc-dev libedit-dev libxxhash-dev libsodium-dev libmicrohttpd-dev libcurl4-gnutls-dev ca-certificates libcmocka-dev"
missing=
installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }
for p in $packages; do
    # Either kind of libcurl will do; they exclude each other.
    [ "$p" = libcurl4-gnutls-dev ] && installed libcurl4-openssl-dev && continue
    installed "$p" || missing="$missing $p"
done 2>/dev/null
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    if pkg-config --exists jansson libpcre2-8 libutf8proc libedit libxxhash libsodium libmicrohttpd libcurl cmocka 2>/dev/null; then exit 0; fi
    echo "hearth: this is not Debian: install the development files of jansson, pcre2, utf8proc, libedit, xxhash, libsodium, libmicrohttpd, libcurl and cmocka, with pkg-config and a C compiler, then run make again" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "hearth: run as root:  apt-get install$missing" >&2; exit 1; }
    sudo=sudo
fi
echo "installing$missing"
$sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
