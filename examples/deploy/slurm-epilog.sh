#!/bin/sh
# Epilog of slurmd: removes the job from the files that slurm-prolog.sh has written. It always succeeds, too.
folder=${DCGM_HPC_JOB_MAPPING_DIR:-/run/gpu-jobs}
command exec 9>"$folder.lock" && flock -w 10 9 # without "command", a failure ends a POSIX shell
for file in "$folder"/*; do
    [ -f "$file" ] && sed -i "/^$SLURM_JOB_ID\$/d" "$file"
    [ -s "$file" ] || rm -f "$file"
done
exit 0
