{{/* Names and labels. */}}
{{- define "deft.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 52 bytes at most: the pods of a StatefulSet and our own endings come behind it. */}}
{{- define "deft.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "deft.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "deft.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "deft.selectorLabels" -}}
app.kubernetes.io/name: {{ include "deft.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "deft.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "deft.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of an object: (list $ ENDING-OF-ITS-NAME). */}}
{{- define "deft.metadata" -}}
{{- $top := index . 0 -}}
name: {{ include "deft.fullname" $top }}{{ index . 1 }}
namespace: {{ $top.Release.Namespace }}
labels:
  {{- include "deft.labels" $top | nindent 2 }}
{{- end -}}

{{/* (list $ IMAGE) with repository, tag and digest. */}}
{{- define "deft.image" -}}
{{- $top := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default $top.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "deft.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "deft.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "deft.host" -}}
{{- printf "%s.%s.svc" (include "deft.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "deft.url" -}}
{{- printf "%s://%s:%d" (ternary "https" "http" .Values.tls.enabled) (include "deft.host" .) (int .Values.service.port) -}}
{{- end -}}

{{- define "deft.needsCertificate" -}}
{{- if or .Values.tls.enabled .Values.webhook.enabled }}yes{{ end -}}
{{- end -}}

{{/* What YAML reads as false is the mode off. */}}
{{- define "deft.mode" -}}
{{- if kindIs "bool" .Values.settings.mode }}off{{ else }}{{ default "observe" .Values.settings.mode }}{{ end -}}
{{- end -}}

{{/* A number of the values without an exponent, yes or no for a switch. */}}
{{- define "deft.setting" -}}
{{- if kindIs "bool" . -}}{{ ternary "yes" "no" . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}
{{- else -}}{{ . }}
{{- end -}}
{{- end -}}
