#!/usr/bin/env bash
# A bootstrap provider: makes the data of all Recipes that have none, and ends. A real one watches.
# Arguments go to every kubectl, e.g. --kubeconfig=FILE. KUBECTL names another kubectl.
set -euo pipefail

kubectl() { command "${KUBECTL:-kubectl}" "$@"; }

kubectl "$@" get recipes -n default \
  -o 'jsonpath={range .items[*]}{.metadata.name}|{.metadata.uid}|{.status.ready}|{.spec.greeting}{"\n"}{end}' |
while IFS='|' read -r name uid ready greeting; do
  [ "$ready" != true ] || continue
  # The Secret goes with its Recipe, and the Recipe with its Machine.
  kubectl "$@" apply -f - <<EOF
apiVersion: v1
kind: Secret
metadata:
  name: $name-bootstrap
  namespace: default
  ownerReferences:
    - { apiVersion: bootstrap.example.com/v1, kind: Recipe, name: $name, uid: $uid }
stringData:
  value: |
    #!/bin/sh
    echo '$greeting'
    exec kubelet --hostname-override=<<MACHINE_NAME>> --token=<<BOOTSTRAP_TOKEN>>
EOF
  # Last, as the core looks at nothing else before it is there.
  kubectl "$@" patch recipe "$name" -n default --subresource=status --type=merge \
    -p "{\"status\":{\"ready\":true,\"phase\":\"Cooked\",\"dataSecretName\":\"$name-bootstrap\"}}"
done
