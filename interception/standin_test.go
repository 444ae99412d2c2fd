// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"errors"
	"os"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func TestStandInNetns(t *testing.T) {
	t.Parallel()
	id := interception.NetnsID{Inode: 7}
	ns := interception.StandInNetns("a pod", id)
	if ns.ID() != id || ns.File() != nil || ns.String() != "a pod (stands in for net:[7])" {
		t.Errorf("%s has the id %v and the file %v", ns, ns.ID(), ns.File())
	}
	if err := ns.Check(); err != nil {
		t.Errorf("Check of an open one: %v", err)
	}
	if err := ns.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := ns.Check(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Check of a closed one: %v, want os.ErrClosed", err)
	}
	if err := ns.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close of a closed one: %v, want os.ErrClosed", err)
	}
}

func TestCheckOfNoNetns(t *testing.T) {
	t.Parallel()
	for name, ns := range map[string]*interception.Netns{"nil": nil, "zero": {}} {
		if err := ns.Check(); !errors.Is(err, interception.ErrNotNetns) {
			t.Errorf("%s: %v, want ErrNotNetns", name, err)
		}
		if err := ns.Close(); !errors.Is(err, interception.ErrNotNetns) {
			t.Errorf("Close of %s: %v, want ErrNotNetns", name, err)
		}
	}
}

func TestNoFileIsNoNetns(t *testing.T) {
	t.Parallel()
	if _, err := interception.NetnsFromFile(nil, interception.NetnsOptions{}); !errors.Is(err, interception.ErrNotNetns) {
		t.Errorf("%v, want ErrNotNetns", err)
	}
}

func TestUnsupportedIsThatOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	if err := interception.ErrUnsupported; !errors.Is(err, errors.ErrUnsupported) || errors.Is(errors.ErrUnsupported, err) || err.Error() != "not supported" {
		t.Error(err)
	}
}

func TestNoPlanIsInvalid(t *testing.T) {
	t.Parallel()
	var plan *interception.Plan
	if err := plan.Validate(); !errors.Is(err, interception.ErrPlan) {
		t.Errorf("%v, want ErrPlan", err)
	}
}
