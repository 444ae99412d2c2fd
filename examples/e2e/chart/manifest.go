// SPDX-License-Identifier: Apache-2.0

package chart

import "strings"

// Manifest returns the rendering, without hooks, for kubectl apply.
func (r Rendering) Manifest(head string) string {
	var out strings.Builder
	out.WriteString(head)
	for _, o := range r.Objects {
		out.WriteString("---\n")
		for line := range strings.Lines(o.Text) {
			if !ofHelm(strings.TrimSpace(line)) {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// ofHelm reports whether a line names Helm as the installer, or repeats the licence.
func ofHelm(words string) bool {
	return strings.HasPrefix(words, "helm.sh/chart:") || strings.HasPrefix(words, "app.kubernetes.io/managed-by:") ||
		strings.HasPrefix(words, "# SPDX-")
}
