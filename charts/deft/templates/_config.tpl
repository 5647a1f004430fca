{{/* The controller's file of settings; also what the pod's checksum is of. */}}
{{- define "deft.config" -}}
{{- $files := "/etc/deft/certificate" -}}
listen = 0.0.0.0
port = 7600
db = /var/lib/deft/deft.db
mode = {{ include "deft.mode" . }}
{{- range $key, $value := omit .Values.settings "mode" }}
{{- if not (kindIs "invalid" $value) }}
{{ $key }} = {{ include "deft.setting" $value }}
{{- end }}
{{- end }}
{{- if .Values.tls.enabled }}
tls-cert = {{ $files }}/tls.crt
tls-key = {{ $files }}/tls.key
{{- end }}
{{- if .Values.webhook.enabled }}
webhook-port = 7601
webhook-cert = {{ $files }}/tls.crt
webhook-key = {{ $files }}/tls.key
webhook-path-file = /etc/deft/webhook/path
webhook-image = {{ include "deft.image" (list . .Values.agent.image) }}
webhook-controller = {{ include "deft.url" . }}
{{- if .Values.tls.enabled }}
webhook-controller-ca = {{ $files }}/ca.crt
{{- end }}
webhook-expires = {{ .Values.webhook.tokenExpires }}
{{- end }}
{{- end -}}
