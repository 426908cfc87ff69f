#!/bin/sh
# Checks that an optimized build is hardened: position-independent code, full RELRO, no executable stack, stack protector,
# FORTIFY_SOURCE and, on x86, marked targets of indirect branches.
# usage: hardening.sh FILE...
set -eu
failed=0
complain() {
  echo "hardening: $file: $*" >&2
  failed=1
}
for file in "$@"; do
  headers=$(readelf --wide --file-header --program-headers --dynamic --notes "$file")
  symbols=$(readelf --wide --dyn-syms "$file")
  has() { printf '%s\n' "$1" | grep -qE "$2"; }
  has "$headers" 'Type: +DYN' || complain "not position-independent"
  has "$headers" 'GNU_RELRO' || complain "no RELRO"
  has "$headers" 'BIND_NOW|FLAGS_1.*NOW' || complain "RELRO is not full: symbols are bound lazily"
  has "$headers" 'GNU_STACK .* RWE' && complain "executable stack"
  has "$symbols" '__stack_chk_fail' || complain "no stack protector"
  has "$symbols" '__[a-z]+_chk' || complain "no FORTIFY_SOURCE"
  case $(uname -m) in
    # The linker drops the property from the file, because Debian's start files lack it. So look for the instructions.
    x86_64) objdump --disassemble --section=.text "$file" | grep -q endbr64 || complain "no -fcf-protection" ;;
  esac
done
exit $failed
