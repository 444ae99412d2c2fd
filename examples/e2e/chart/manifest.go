// SPDX-License-Identifier: Apache-2.0

package chart

import "strings"

// Manifest is a rendering for who installs without Helm, as kubectl apply takes it. There are no hooks in it.
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

// ofHelm says of a line that it names Helm as who installed it, or the licence once more.
func ofHelm(words string) bool {
	return strings.HasPrefix(words, "helm.sh/chart:") || strings.HasPrefix(words, "app.kubernetes.io/managed-by:") ||
		strings.HasPrefix(words, "# SPDX-")
}
