// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"io/fs"
	"testing"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

func TestInstallMode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args    []string
		mode    reconciler.Mode
		file    string
		primary string
	}{
		{nil, "", "", ""},
		{[]string{"--install-mode=splice"}, reconciler.Splice, "", ""},
		{[]string{"--cni-conf-name=10-a.conf"}, "", "", "10-a.conf"},
		{[]string{"--install-mode=auto"}, reconciler.Auto, "", ""},
		{[]string{"--install-mode=dropin", "--cni-conf-name=10-a.conflist"}, reconciler.DropIn, "", "10-a.conflist"},
		{[]string{"--istio-owned-cni-config"}, reconciler.Owned, "02-istio-cni.conflist", ""},
		{[]string{"--install-mode=owned", "--istio-owned-cni-config", "--istio-owned-cni-config-filename=00-x.conflist", "--cni-conf-name=10-a.conf"}, reconciler.Owned, "00-x.conflist", "10-a.conf"},
		{[]string{"--chained-cni-plugin=false"}, reconciler.Standalone, "", ""},
		{[]string{"--install-mode=standalone", "--cni-conf-name=YYY-a.conf"}, reconciler.Standalone, "YYY-a.conf", ""},
	} {
		s := mustLoad(t, nil, test.args...)
		if s.InstallMode() != test.mode || s.ConfFile() != test.file || s.Primary() != test.primary {
			t.Errorf("%q: mode %q, own file %q, primary %q; want %q, %q, %q", test.args, s.InstallMode(), s.ConfFile(), s.Primary(), test.mode, test.file, test.primary)
		}
	}
	for group, want := range map[string]fs.FileMode{"true": 0o640, "false": 0o600} {
		if got := mustLoad(t, nil, "--cni-conf-group-read="+group).ConfMode(); got != want {
			t.Errorf("group-read %s: mode %v, want %v", group, got, want)
		}
	}
	wantErrors(t, nil, []string{"--chained-cni-plugin=false", "--istio-owned-cni-config"}, "istio-owned-cni-config=true asks for owned, and install-mode is standalone")
	wantErrors(t, nil, []string{"--istio-owned-cni-config", "--install-mode=splice"}, "istio-owned-cni-config=true asks for owned, and install-mode is splice")
	wantErrors(t, nil, []string{"--istio-owned-cni-config-filename=00-x.conflist"}, "istio-owned-cni-config-filename is 00-x.conflist, and install-mode is empty")
	wantErrors(t, nil, []string{"--chained-cni-plugin=false", "--fixed-default-network"}, "standalone has none")
}
