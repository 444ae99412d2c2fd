// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"strings"
)

// relations says what is wrong among settings that are right by themselves.
func (s Settings) relations() error {
	err := s.FailPolicy.Validate()
	if err != nil {
		err = fmt.Errorf("fail-open-namespaces and fail-closed-namespaces: %w", err)
	}
	_, templateErr := s.TemplateEntry()
	return errors.Join(err, s.apart(), s.modes(), templateErr, s.tainted())
}

// apart wants each directory that is written to by itself: what is removed from one, or read from another, must not be in it by mistake.
func (s Settings) apart() error {
	written := []struct{ name, path string }{
		{"mounted-cni-net-dir", s.NetDir},
		{"mounted-cni-bin-dir", s.BinDir},
		{"cni-agent-run-dir", s.RunDir},
		{"secondary-cni-bin-dir", s.SecondBinDir},
	}
	var errs []error
	for i, a := range written {
		for _, b := range written[i+1:] {
			if a.path != "" && a.path == b.path {
				errs = append(errs, fmt.Errorf("%s and %s are both %s: name a directory for each", a.name, b.name, a.path))
			}
		}
		for _, read := range []struct{ name, path string }{
			{"cni-bin-source-dir", s.SourceDir}, {"service-account-dir", s.ServiceAccountDir}, {DirectorySetting, s.Directory},
		} {
			if read.path != "" && (a.path == read.path || strings.HasPrefix(a.path, read.path+"/")) {
				errs = append(errs, fmt.Errorf("%s is %s, in %s, which is only read from: name another directory", a.name, a.path, read.name))
			}
		}
	}
	return errors.Join(errs...)
}

// tainted wants the node's name where it has a taint.
func (s Settings) tainted() error {
	if s.ReadinessTaint != "" && s.NodeName == "" {
		return errors.New("readiness-taint is set, and nobody knows the node: set node-name")
	}
	return nil
}
