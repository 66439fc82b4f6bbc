# What nixpkgs' stdenv gives a builder, as far as kbuild's derivations use it.
export PATH=
for input in ${nativeBuildInputs:-} ${buildInputs:-}; do
  if [ -d "$input/bin" ]; then PATH=$PATH${PATH:+:}$input/bin; fi
done
PATH=$PATH${PATH:+:}${hostPath:-/usr/bin}
autoPatchelf() { :; }
