// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import "testing"

func TestScalar(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{"istio-cni", "istio-cni"},
		{"https://10.96.0.1:443", "https://10.96.0.1:443"},
		{"LS0tLS1CRUdJTg==", "LS0tLS1CRUdJTg=="},
		{"https://[fd00::1]:443", `"https://[fd00::1]:443"`},
		{"", `""`},
		{"Yes", `"Yes"`},
		{"NULL", `"NULL"`},
		{"1e3", `"1e3"`},
		{".inf", `".inf"`},
		{"- a", `"- a"`},
		{"a: b", `"a: b"`},
		{"a:", `"a:"`},
		{"a #b", `"a #b"`},
		{`a"\`, `"a\"\\"`},
		{"a\nb\x00\u2028", `"a\nb\x00\u2028"`},
		{"ä", `"ä"`},
	} {
		if got := scalar(tc.text); got != tc.want {
			t.Errorf("scalar(%q) is %s, want %s", tc.text, got, tc.want)
		}
	}
}
