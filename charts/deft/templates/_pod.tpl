{{/* What the pods of the chart mount of certificates and tokens. */}}
{{- define "deft.certificateVolume" -}}
- name: certificate
  projected:
    # The group of the pod may read it; a key that everybody may read is refused.
    defaultMode: 0440
    sources:
      - secret:
          name: {{ include "deft.certificateSecret" . }}
          {{- if eq (include "deft.certificates" .) "existing" }}
          items:
            - key: tls.crt
              path: tls.crt
            - key: tls.key
              path: tls.key
      - configMap:
          name: {{ include "deft.fullname" . }}
          items:
            - key: ca.crt
              path: ca.crt
          {{- end }}
{{- end -}}

{{/* A step before the controller: the token of this role is in the database. The controller starts on
     an address of the network only with a token that holds. */}}
{{- define "deft.tokenStep" -}}
{{- $top := index . 0 -}}
{{- $role := index . 1 -}}
- name: {{ $role }}-token
  image: {{ include "deft.image" (list $top $top.Values.image) }}
  imagePullPolicy: {{ $top.Values.image.pullPolicy }}
  command:
    - deft-controller
    - token
    - --db=/var/lib/deft/deft.db
    - create
    - --name=chart-{{ $role }}
    - --role={{ $role }}
    - --from-file=/etc/deft/tokens/{{ $role }}
    - --reason=release {{ $top.Release.Name }}
  securityContext:
    {{- toYaml $top.Values.securityContext | nindent 4 }}
  resources:
    {{- toYaml $top.Values.resources | nindent 4 }}
  volumeMounts:
    - name: data
      mountPath: /var/lib/deft
    - name: tokens
      mountPath: /etc/deft/tokens
      readOnly: true
{{- end -}}
