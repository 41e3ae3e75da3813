# Builds the API server of Kubernetes: build.sh PRODUCT
set -eu
scratch=$(dirname "$1")/..
# Its own go.mod takes parts of Kubernetes from folders that are not in the module; they are modules of their own.
home=$(go mod download -json k8s.io/kubernetes@v1.37.2 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
sed 's#=> \./staging/src/\(.*\)#=> \1 v0.37.2#' "$home/go.mod" >"$scratch/go.mod"
cp "$home/go.sum" "$scratch/go.sum"
chmod u+w "$scratch/go.mod" "$scratch/go.sum"
cd "$home"
go build -v -modfile="$scratch/go.mod" -mod=mod -trimpath -buildvcs=false -ldflags="-s -w" -o "$1" ./cmd/kube-apiserver
