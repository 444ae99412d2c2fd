// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package filesystem

import "errors"

func makePipe(string) error { return errors.ErrUnsupported }
