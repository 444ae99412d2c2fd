// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

// ownedFile is the name of our own list, as Istio's installer calls its own.
const ownedFile = "02-istio-cni.conflist"

// installModes are the values of install-mode; nothing leaves it to Istio's settings.
func installModes() []string {
	return []string{
		string(reconciler.Splice), string(reconciler.Owned), string(reconciler.DropIn), string(reconciler.Standalone), string(reconciler.Auto), "",
	}
}

// chained is Istio's switch between a chained plugin and one of its own.
func chained() parser {
	p := boolean(func(s *Settings) *bool { return &s.Standalone })
	set := p.apply
	p.apply = func(s *Settings, value string) error {
		err := set(s, value)
		s.Standalone = err == nil && !s.Standalone
		return err
	}
	return p
}

// InstallMode is the way to install that is asked for, by our setting or by those of Istio's install-cni; empty if none is.
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

// ConfMode is the permission bits of CNI configurations of our own.
func (s Settings) ConfMode() fs.FileMode {
	if s.GroupRead {
		return 0o640
	}
	return 0o600
}

// ConfFile is the name of the CNI configuration of our own; empty means the reconciler's.
func (s Settings) ConfFile() string {
	switch mode := s.InstallMode(); {
	case mode == reconciler.Standalone:
		return s.ConfName
	case mode == reconciler.Owned && s.OwnFile == "":
		return ownedFile
	}
	return s.OwnFile
}

// Primary is the name of the file of the network to chain to; empty means the first valid one.
func (s Settings) Primary() string {
	if s.InstallMode() == reconciler.Standalone {
		return ""
	}
	return s.ConfName
}

// modes says what is wrong among the settings that ask for a way to install.
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
		errs = append(errs, errors.New("fixed-default-network is about the primary network, and standalone has none: leave it out"))
	}
	return errors.Join(errs...)
}
