// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package agent

import (
	"os"

	"github.com/meshcni/meshcni/interception"
)

func identify(*os.File) interception.NetnsID { return interception.NetnsID{} }

func hasInterface(*interception.Netns, string) (bool, error) {
	return false, interception.ErrUnsupported
}
