{{- define "yardmaster.labels" -}}
app.kubernetes.io/name: yardmaster
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "yardmaster.selector" -}}
app.kubernetes.io/name: yardmaster
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "yardmaster.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* Of every pod but the agent's. */}}
{{- define "yardmaster.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "yardmaster.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where every control plane is dialled: each has a name of its own. */}}
{{- define "yardmaster.controls" -}}
{{- $root := . -}}
{{- $urls := list -}}
{{- range $index := until (int .Values.control.replicas) -}}
{{- $urls = append $urls (printf "wss://%s-control-%d.%s-control:8300" $root.Release.Name $index $root.Release.Name) -}}
{{- end -}}
{{- toJson $urls -}}
{{- end }}
