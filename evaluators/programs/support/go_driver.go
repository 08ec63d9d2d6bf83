package main

import (
	evalrunos "os"
	evalruntesting "testing"
)

func main() {
	evalruntesting.Main(
		func(pattern, name string) (bool, error) { return true, nil },
		[]evalruntesting.InternalTest{
			//TESTS
			{"evalrun", func(t *evalruntesting.T) {
				evalrunos.NewFile(3, "control").WriteString("NONCE")
			}},
		}, nil, nil)
}
