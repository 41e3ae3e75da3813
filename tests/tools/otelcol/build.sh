# Builds the Collector of a manifest: build.sh MANIFEST PRODUCT
set -eu
manifest=$(cd ../../.. && pwd)/$1
version=$(sed -n 's/^  version: //p' "$manifest")
tags=$(sed -n 's/^  build_tags: //p' "$manifest")
cd "$(dirname "$2")/.." # a scratch folder
# The builder writes main.go and go.mod into ./otelcol.
go run "go.opentelemetry.io/collector/cmd/builder@v$version" --config "$manifest" --skip-compilation
cd otelcol
go build -v -trimpath -buildvcs=false -ldflags="-s -w" -tags="$tags" -o "$2" .
