#!/bin/sh
# Requests a serving certificate from the signer example.com/server-tls with kubectl and openssl, and verifies it.
set -eu

name=${1:-web.example.com}
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tls.key -subj "/CN=$name" -addext "subjectAltName=DNS:$name" -out tls.csr
kubectl create -f - <<END
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata:
  name: $name
spec:
  request: $(base64 -w0 tls.csr)
  signerName: example.com/server-tls
  expirationSeconds: 86400
  usages: [digital signature, server auth]
END
kubectl wait --for=jsonpath='{.status.certificate}' "csr/$name" --timeout=60s
kubectl get csr "$name" -o jsonpath='{.status.certificate}' | base64 -d > tls.crt
kubectl get clustertrustbundle example.com:server-tls:anchors -o jsonpath='{.spec.trustBundle}' > ca.crt
openssl verify -purpose sslserver -CAfile ca.crt tls.crt
