#!/bin/bash
# Plays a cloud that takes spot nodes back: time after time it takes a node on which the job elastic has a pod, with the
# notice of 15 seconds, and gives it back half an interval later. Of that node's pods only the job's are asked to go.
#
#   take.sh [TIMES] [SECONDS BETWEEN THEM]
set -euo pipefail
times=${1:-3} seconds=${2:-60}
pods=elastic-pytorch.dev/job-name=elastic

for ((taken = 1; taken <= times; taken++)); do
  node=$(kubectl get pods --selector "$pods" --sort-by .metadata.creationTimestamp \
    --output jsonpath='{.items[0].spec.nodeName}')
  echo "$(date +%T) $node is taken"
  kubectl cordon "$node" >/dev/null
  kubectl drain "$node" --pod-selector "$pods" --delete-emptydir-data --grace-period 15 >/dev/null
  sleep $((seconds / 2))
  kubectl uncordon "$node" >/dev/null
  echo "$(date +%T) $node is given back"
  sleep $((seconds - seconds / 2))
done
