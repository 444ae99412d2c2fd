// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

// ownedFile is the default name of our own list, the same as in Istio's installer.
const ownedFile = "02-istio-cni.conflist"

// installModes returns the values of install-mode; the empty one leaves the mode to Istio's
// settings.
func installModes() []string {
	return []string{
		string(reconciler.Splice), string(reconciler.Owned), string(reconciler.DropIn), string(reconciler.Standalone), string(reconciler.Auto), "",
	}
}

// chained parses Istio's switch between a chained plugin and one with a network of its own.
func chained() parser {
	of := func(s *Settings) *bool { return &s.Standalone }
	return parsed("bool", shape{Type: "boolean"}, of, func(value string) (bool, error) {
		chained, err := parseBool(value)
		return !chained, err
	})
}

// InstallMode returns the mode that our setting or those of Istio's install-cni select; empty if no
// setting selects one.
func (s Settings) InstallMode() reconciler.Mode {
	switch {
	case s.AskedMode != "":
		return reconciler.Mode(s.AskedMode)
	case s.Standalone:
		return reconciler.Standalone
	case s.Owned:
		return reconciler.Owned
	}
	return ""
}

// ConfMode returns the permission bits of our own CNI configurations.
func (s Settings) ConfMode() fs.FileMode {
	if s.GroupRead {
		return 0o640
	}
	return 0o600
}

// ConfFile returns the name of our own CNI configuration; empty means the reconciler's default.
func (s Settings) ConfFile() string {
	switch mode := s.InstallMode(); {
	case mode == reconciler.Standalone:
		return s.ConfName
	case mode == reconciler.Owned && s.OwnFile == "":
		return ownedFile
	}
	return s.OwnFile
}

// Primary returns the file name of the network to chain to; empty means the first valid one.
func (s Settings) Primary() string {
	if s.InstallMode() == reconciler.Standalone {
		return ""
	}
	return s.ConfName
}

// modes returns an error for contradictory settings of the mode.
func (s Settings) modes() error {
	mode := s.InstallMode()
	var errs []error
	for _, other := range []struct {
		asked bool
		name  string
		mode  reconciler.Mode
	}{
		{s.Standalone, "chained-cni-plugin=false", reconciler.Standalone},
		{s.Owned, "istio-owned-cni-config=true", reconciler.Owned},
	} {
		if other.asked && other.mode != mode {
			errs = append(errs, fmt.Errorf("%s asks for %s, and install-mode is %s: leave one of them out", other.name, other.mode, mode))
		}
	}
	if s.OwnFile != "" && mode != reconciler.Owned {
		errs = append(errs, fmt.Errorf("istio-owned-cni-config-filename is %s, and install-mode is %s: leave one of them out",
			s.OwnFile, cmp.Or(mode, "empty")))
	}
	if mode == reconciler.Standalone && s.FixedDefaultNetwork {
		errs = append(errs, errors.New("fixed-default-network concerns the primary network, and standalone has none: leave it out"))
	}
	return errors.Join(errs...)
}
