{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* meshcni.contradictions are the reasons, as a list, why the values given don't go together: the daemon would refuse them at every start. */ -}}
{{- define "meshcni.contradictions" -}}
{{- $problems := list -}}
{{- $settings := .settings | default dict -}}
{{- $watches := ne (toString .watchPods) "false" -}}
{{- with include "meshcni.ambientMode" . -}}
{{- if not $watches -}}
{{- $problems = append $problems "ambient.enabled: ambient mode needs watchPods, by which the daemon learns of the node's pods" -}}
{{- end -}}
{{- $way := $settings.ambientWay | default (dig "ambient" "way" "" $) -}}
{{- if and (eq $way "vxlan") (ne . "node") -}}
{{- $problems = append $problems "ambient.way: vxlan needs ambient.mode=node; with mode in-pod no wire leads to the proxy" -}}
{{- end -}}
{{- if and (eq . "node") (eq (toString $settings.ambientExisting) "capture") -}}
{{- $problems = append $problems "settings.ambientExisting: capture needs ambient.mode=in-pod; mode node leaves the connections of a running pod alone" -}}
{{- end -}}
{{- with include "meshcni.sharedDirectory" (include "meshcni.proxyDirectory" $) -}}
{{- $problems = append $problems (printf "settings.ztunnelUdsAddress: %s" .) -}}
{{- end -}}
{{- end -}}
{{- if and $settings.readinessTaint (not $watches) -}}
{{- $problems = append $problems "settings.readinessTaint: it needs watchPods, without which the daemon does not know its node" -}}
{{- end -}}
{{- if and (dig "podMonitor" "enabled" false .) (not (int .monitoringPort)) -}}
{{- $problems = append $problems "podMonitor.enabled: with monitoringPort=0 there are no metrics to read" -}}
{{- end -}}
{{- toYaml $problems -}}
{{- end -}}

{{- /*
meshcni.sharedDirectory is why a directory of the node must not be mounted for the proxy's socket; empty if it may be. The container could write to all
that is in it, and the API server refuses two mounts at one path.
*/ -}}
{{- define "meshcni.sharedDirectory" -}}
{{- $shared := list "/" "/bin" "/boot" "/etc" "/home" "/host" "/lib" "/lib64" "/mnt" "/opt" "/root" "/run" "/sbin" "/srv" "/tmp" "/usr" "/var" "/var/lib" "/var/run" -}}
{{- if or (has . $shared) (regexMatch "^/(proc|sys|dev)(/|$)" .) -}}
{{- printf "the directory %s of the node would be mounted, to write to; name a socket in a directory of its own, such as /var/run/ztunnel/ztunnel.sock" . -}}
{{- else if has . (list "/etc/install-cni" "/var/run/istio-cni") -}}
{{- printf "%s has another purpose; name a socket in a directory of its own, such as /var/run/ztunnel/ztunnel.sock" . -}}
{{- end -}}
{{- end -}}
