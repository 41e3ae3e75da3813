# Unpacks a build of python-build-standalone, which a Go module embeds: unpack.sh MODULE SYSTEM FOLDER
set -eu
folder=$(go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
cp -r "$folder/python/internal/data/$2" "$3"
chmod -R u+rwX "$3"
find "$3" -name '*.gz' -exec gunzip {} +
