{{/* What is random is made once for all templates, and what a cluster has of it is used again, so
     that an upgrade changes nothing. Without a cluster (helm template) it is new every time. */}}
{{- define "deft.made" -}}
{{- if not (hasKey .Values "made") -}}
{{- $made := dict -}}
{{- $name := include "deft.fullname" . -}}
{{- $space := .Release.Namespace -}}

{{- $old := (lookup "v1" "Secret" $space (printf "%s-tokens" $name)).data | default dict -}}
{{- range $role := list "operator" "viewer" -}}
{{- $_ := set $made $role (get $old $role | b64dec | default (printf "deft_%s" (randAlphaNum 43))) -}}
{{- end -}}

{{- $old = (lookup "v1" "Secret" $space (printf "%s-webhook-path" $name)).data | default dict -}}
{{- $path := get $old "path" | b64dec | default (randAlphaNum 43) -}}
{{- $_ := set $made "path" (default $path .Values.webhook.path) -}}

{{- $old = (lookup "v1" "Secret" $space (printf "%s-certificate" $name)).data | default dict -}}
{{- if and (get $old "tls.crt") (get $old "tls.key") (get $old "ca.crt") -}}
{{- range $key := list "tls.crt" "tls.key" "ca.crt" -}}
{{- $_ := set $made $key (get $old $key | b64dec) -}}
{{- end -}}
{{- else if eq (include "deft.certificates" .) "made" -}}
{{- $days := int .Values.certificates.validityDays -}}
{{- $ca := genCA (printf "%s.%s authority" $name $space | trunc 63) $days -}}
{{- $host := include "deft.host" . -}}
{{- $names := list $host $name (printf "%s.%s" $name $space) (printf "%s.cluster.local" $host) -}}
{{- $leaf := genSignedCert ($host | trunc 63) nil $names $days $ca -}}
{{- $_ := set $made "tls.crt" $leaf.Cert -}}
{{- $_ := set $made "tls.key" $leaf.Key -}}
{{- $_ := set $made "ca.crt" $ca.Cert -}}
{{- end -}}
{{- $_ := set .Values "made" $made -}}
{{- end -}}
{{- end -}}

{{/* Where the certificate comes from: existing, cert-manager or made. */}}
{{- define "deft.certificates" -}}
{{- $own := .Values.certificates -}}
{{- if and $own.existingSecret $own.certManager.enabled -}}
{{- fail "certificates.existingSecret and certificates.certManager.enabled exclude each other" -}}
{{- else if and $own.existingSecret (not $own.caBundle) -}}
{{- fail "certificates.existingSecret needs certificates.caBundle: the API server and agents believe no certificate without its authorities" -}}
{{- else if and $own.caBundle (not $own.existingSecret) -}}
{{- fail "certificates.caBundle is of certificates.existingSecret, which is not given" -}}
{{- else if and $own.caBundle (not (contains "-----BEGIN CERTIFICATE-----" (include "deft.caBundle" . | b64dec))) -}}
{{- fail "certificates.caBundle is no base64 of a certificate in PEM" -}}
{{- end -}}
{{- if $own.existingSecret }}existing{{ else if $own.certManager.enabled }}cert-manager{{ else }}made{{ end -}}
{{- end -}}

{{/* One line of base64, however it was given. */}}
{{- define "deft.caBundle" -}}
{{- regexReplaceAll "\\s" .Values.certificates.caBundle "" -}}
{{- end -}}

{{- define "deft.certificateSecret" -}}
{{- default (printf "%s-certificate" (include "deft.fullname" .)) .Values.certificates.existingSecret -}}
{{- end -}}

{{- define "deft.tokensSecret" -}}
{{- default (printf "%s-tokens" (include "deft.fullname" .)) .Values.tokens.existingSecret -}}
{{- end -}}
